"""The checks between clients and a run: for training, for evaluation, and beside the rounds."""

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
    """Whether an engine's clients are on other machines, by its attribute `elsewhere`."""
    return bool(getattr(clients, "elsewhere", False))


def meter_of(clients: Engine, faults: Faults, federation: Federation, privacy: Privacy) -> Metered:
    """The engine with metering, and with simulated faults if there are any."""
    asked = Faulty(clients, faults) if faults.any else clients
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
    if not isinstance(innermost(algorithm), LocalOnly):  # whose clients move no other's model
        limits = limits_of(clients, limits)
    told, where = partial(advice, federation), are_elsewhere(clients)
    faults = meter.engine.faults if isinstance(meter.engine, Faulty) else Faults()
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
    """The limits for these clients: steps of those elsewhere are bounded unless it is said."""
    if are_elsewhere(clients) and limits.max_norm_ratio is None:
        return replace(limits, max_norm_ratio=RATIO_ELSEWHERE)
    return limits


def known_sizes(clients: object, federation: Federation, privacy: Privacy) -> Sizes:
    """The numbers of examples that claims are held to; with privacy, nodes do not tell them."""
    told = are_elsewhere(clients) and privacy.clip is None
    return sizes_by_split(federation) if told else NOT_KNOWN


def _never_negative(net: Net) -> bool:
    """Whether no loss is below 0, which an objective of one's own may allow."""
    return net.objective in OBJECTIVES.values()


def share_of(clients: Engine, limits: Limits) -> float:
    """One client's largest share in means over examples; counts of this process are trusted."""
    return limits.max_share if are_elsewhere(clients) else 1.0
