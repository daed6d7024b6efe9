"""The checks of replies in training, in evaluation, and outside of rounds."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from umbel.algorithms.base import Algorithm
from umbel.algorithms.local_only import LocalOnly
from umbel.algorithms.restarts import innermost
from umbel.client.net import Net
from umbel.client.objectives import OBJECTIVES
from umbel.data.federation import Federation
from umbel.engines.metering import Metered
from umbel.engines.privacy import Privacy
from umbel.engines.replies.claims import NOT_KNOWN, Sizes, sizes_by_split
from umbel.engines.replies.faults import Faults, Faulty
from umbel.engines.replies.guarded import Guarded
from umbel.engines.replies.validation import Limits
from umbel.flow import Engine
from umbel.preflight.network import advice

log = logging.getLogger(__name__)

RATIO_ELSEWHERE = 4.0
"""Default of `limits.max_norm_ratio` for clients on other machines."""


def are_elsewhere(clients: object) -> bool:
    """Return True if an engine's clients are on other machines, by its attribute `elsewhere`."""
    return bool(getattr(clients, "elsewhere", False))


def meter_of(clients: Engine, faults: Faults, federation: Federation, privacy: Privacy) -> Metered:
    """The engine with metering, and with simulated faults if there are any."""
    asked = Faulty(clients, faults) if faults.any else clients
    # With privacy, nodes do not tell their clients' numbers of examples: costs are not known.
    untold = are_elsewhere(clients) and privacy.clip is not None
    return Metered(asked, None if untold else federation.train.sizes)


def guard_of(
    meter: Metered,
    clients: Engine,
    limits: Limits,
    algorithm: Algorithm[Any],
    net: Net,
    federation: Federation,
    sizes: Sizes = NOT_KNOWN,
) -> Guarded:
    """Checks replies in training; `meter` is the engine with metering."""
    # Steps are bounded to protect models that several clients use.
    if not isinstance(innermost(algorithm), LocalOnly):  # there, no client moves another's model
        limits = limits_of(clients, limits)
    told, where = partial(advice, federation), are_elsewhere(clients)
    faults = meter.engine.faults if isinstance(meter.engine, Faulty) else Faults()
    # A claim that weighs nothing needs no bound.
    if not innermost(algorithm).uses_example_counts:
        limits = replace(limits, max_share=1.0)
    known = _never_negative(net)
    return Guarded(
        *(meter, limits, told, faults, where, net.layout),
        pooled=innermost(algorithm).pools,
        never_negative=known,
        net=net,
        names=federation.names,
        sizes=sizes,
        changed=getattr(clients, "changed", {}),
    )


def judge_of(
    clients: Engine, limits: Limits, net: Net, names: Sequence[str], sizes: Sizes = NOT_KNOWN
) -> Guarded:
    """Checks replies in evaluations of the models that clients are served."""
    known = _never_negative(net)
    return Guarded(
        *(clients, limits.unbounded),
        layout=net.layout,
        never_negative=known,
        net=net,
        names=names,
        sizes=sizes,
    )


def limits_of(clients: object, limits: Limits) -> Limits:
    """Return the limits for these clients. Steps of clients elsewhere are bounded by default."""
    if are_elsewhere(clients) and limits.max_norm_ratio is None:
        return replace(limits, max_norm_ratio=RATIO_ELSEWHERE)
    return limits


def known_sizes(clients: object, federation: Federation, privacy: Privacy) -> Sizes:
    """Return the numbers of examples that nodes have stated; with privacy, they do not."""
    told = are_elsewhere(clients) and privacy.clip is None
    return sizes_by_split(federation) if told else NOT_KNOWN


def _never_negative(net: Net) -> bool:
    """Return True if no loss can be below 0; your own objective may have such losses."""
    return net.objective in OBJECTIVES.values()


def share_of(clients: Engine, limits: Limits) -> float:
    """Return one client's largest share in means over examples.

    There is no bound for clients of this process: their numbers of examples are known.
    """
    return limits.max_share if are_elsewhere(clients) else 1.0
