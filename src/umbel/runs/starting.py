"""What a run starts from: its settings, its engine, and the state before its first round."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.algorithms.base import Algorithm, Setup, State, check_only_trains
from umbel.algorithms.restarts import method_of
from umbel.algorithms.sharing import Sharing
from umbel.checks import UsageError, check
from umbel.client.drawing import drawing_from
from umbel.client.layout import Entry
from umbel.client.net import Net
from umbel.client.objectives import OBJECTIVES
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.engines.choice import EngineSettings, make_engine
from umbel.engines.fit import check_batches, check_fit
from umbel.engines.fit_metrics import check_own_metrics
from umbel.engines.privacy import Privacy
from umbel.engines.private import Private
from umbel.engines.sequential import Sequential
from umbel.engines.storage import Storage
from umbel.engines.vectorised import Vectorised
from umbel.engines.workers import Workers
from umbel.flow import Engine
from umbel.runs.forms import as_state
from umbel.seeds import Stream, seed_of
from umbel.summary import counted

log = logging.getLogger(__name__)

ROWS = 4096
"""Examples of an engine's that are compared at once with those of the run."""


def check_settings(seed: int, participation: float, evaluate_every: int) -> None:
    """Raise `UsageError` for what neither a run nor an experiment can have."""
    check(seed >= 0, "seed", seed, "0 or more")
    check(0 < participation <= 1, "participation", participation, "in (0, 1]")
    check(evaluate_every >= 1, "evaluate_every", evaluate_every, "1 or more")


def check_private(algorithm: Algorithm[Any], privacy: Privacy, net: Net | None = None) -> None:
    """Raise `UsageError` where clients would send what noise does not protect, or makes useless."""
    if privacy.clip is None:
        return
    method, moved = method_of(algorithm), [] if net is None else net.layout.rest
    together = "possible together with algorithm.share or algorithm.kept"
    check(not isinstance(method, Sharing), "privacy.clip", privacy.clip, together)
    expected = f"for {type(method).__name__}: its clients send in evaluations what adapting changes"
    check(not method.adapts, "privacy.clip", privacy.clip, expected)
    expected = f"for {type(method).__name__}: its clients send more than updates, unprotected"
    check_only_trains(method, "privacy.clip", privacy.clip, expected)
    named = [entry.name for entry in moved][:1]
    # Noise may make a running variance negative.
    expected = f"left out: noise can't be added to statistics, as {named}; take group norm"
    check(not moved, "privacy.clip", privacy.clip, expected)


def engine_of(
    chosen: Engine | EngineSettings,
    net: Net,
    federation: Federation,
    settings: Sequence[Any],
    privacy: Privacy,
    cohort: int,
    metrics: Sequence[str] = (),
) -> Engine:
    """Where the clients work: an engine by settings, or an object.

    `settings` are those of the method and of what clients do besides; `metrics` are measured beside
    loss and accuracy. An object of another kind than this process's engines is left to check its
    clients and to protect what they send. Raises `UsageError` where the network, or a metric of
    one's own, does not fit the federation, or an engine was made for others.
    """
    if isinstance(chosen, EngineSettings):
        engine = make_engine(net, federation, chosen)
    elif isinstance(chosen, Sequential | Vectorised | Workers):
        engine = chosen
        within = chosen.engine if isinstance(chosen, Workers) else chosen
        if isinstance(within, Sequential | Vectorised):
            _check_holds(within, net, federation)
        with drawing_from(seed=0):
            check_fit(net, federation)
    else:
        return chosen
    for one in settings:
        check_batches(net, federation, one)
    check_own_metrics(net, federation, metrics)
    return engine if privacy.clip is None else Private(engine, privacy, cohort=cohort)


def _check_holds(engine: Sequential | Vectorised, net: Net, federation: Federation) -> None:
    """Raise `UsageError` unless an engine was made for this network and these clients."""
    there = engine.given if isinstance(engine, Sequential) else engine.net
    for said in (*_other_network(there, net), *_other_clients(engine.storage, federation)):
        name = type(engine).__name__
        how = f"write {name}(net, federation) with those of the run"
        raise UsageError(f"engine: {said}; {how}")


def _other_network(there: Net, here: Net) -> Iterator[str]:
    """How the network of an engine differs from that of its run, as sentences."""
    entries = zip_longest(*(each.layout.weights + each.layout.rest for each in (there, here)))
    for one, other in entries:
        if one != other:
            yield f"its network has {_tensor(one)}, and that of the run has {_tensor(other)}"
    if there.dtype != here.dtype:
        yield f"its network is of {there.dtype}, and that of the run of {here.dtype}"
    known = OBJECTIVES.values()
    # Functions of one's own may be the same though they were written anew for each network.
    named = there.objective in known or here.objective in known
    if named and there.objective != here.objective:
        yield "its network has another objective than that of the run"
    if there.build is not here.build:
        if _structure(there) != _structure(here):
            yield "its network is built otherwise than that of the run"
        if there.frozen_digest != here.frozen_digest:
            yield "the frozen values of its network are others than those of the run"


def _other_clients(there: Storage, here: Federation) -> Iterator[str]:
    """How the examples of an engine differ from those of the run's clients, as sentences."""
    clients = len(there.train.sizes)
    if clients != here.num_clients:
        yield f"it holds {counted(clients, 'client')}, and the run's federation {here.num_clients}"
    for name in ("train", "test", "validation"):
        if not _are_same(getattr(there, name), getattr(here, name)):
            what = "training" if name == "train" else name
            yield f"it holds other {what} examples than the run's federation"


def _tensor(entry: Entry | None) -> str:
    return "none" if entry is None else f"{entry.name} {tuple(entry.shape)}"


def _structure(net: Net) -> str:
    return re.sub(r"0x[0-9a-f]+", "", repr(net.modules.training))


def _are_same(there: Split | None, here: Split | None) -> bool:
    """Whether an engine's examples are these, in its type and on its device."""
    if there is None or here is None:
        return there is here
    return np.array_equal(there.offsets, here.offsets) and all(
        _are_equal(*pair) for pair in ((there.x, here.x), (there.y, here.y))
    )


def _are_equal(there: Tensor, here: Tensor) -> bool:
    if there is here:
        return True
    if there.shape != here.shape or there.is_floating_point() != here.is_floating_point():
        return False
    # Block by block, as those on a device may be all that its memory has room for.
    blocks = zip(torch.split(there, ROWS), torch.split(here, ROWS), strict=True)
    return all(torch.equal(one, other.to(one)) for one, other in blocks)


def first_state(
    algorithm: Algorithm[Any],
    net: Net,
    num_clients: int,
    num_rounds: int,
    participation: float,
    seed: int,
    groups: NDArray[np.int64] | None,
) -> State:
    """The state of a method before the first round."""
    setup = Setup(
        num_clients=num_clients,
        num_rounds=num_rounds,
        participation=participation,
        layout=net.layout,
        new_model=lambda number: net.new(seed_of(seed, Stream.MODEL, number)),
        seed=seed_of(seed, Stream.SETUP),
        groups=None if groups is None else torch.from_numpy(groups),
    )
    state: State = as_state(algorithm.init(setup), setup, net.dtype)
    return state


def start_of(
    algorithm: Algorithm[Any],
    net: Net,
    federation: Federation,
    num_rounds: int,
    participation: float,
    seed: int,
) -> State:
    """As `first_state`, for clients that are to be trained: says it where none can be judged."""
    if not federation.test.sizes.any():
        log.warning("no client has test examples: neither loss nor accuracy is measured")
    size, groups = federation.num_clients, federation.groups
    return first_state(algorithm, net, size, num_rounds, participation, seed, groups)
