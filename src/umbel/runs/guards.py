"""The checks that stand between clients and a run: of what trains models, and of what judges."""

from __future__ import annotations

from umbel.client.net import Net
from umbel.client.objectives import OBJECTIVES
from umbel.engines.validation import Limits
from umbel.engines.wrappers import Guarded
from umbel.flow import Engine


def are_elsewhere(clients: Engine) -> bool:
    """Whether an engine's clients are on other machines, as it says itself."""
    return bool(getattr(clients, "elsewhere", False))


def judge_of(clients: Engine, limits: Limits, net: Net) -> Guarded:
    """Hands on what clients say of the models that they are served."""
    known = net.objective in OBJECTIVES.values()
    return Guarded(clients, limits.judging(are_elsewhere(clients)), never_negative=known)
