"""The start of a run: checked settings, an engine, and the state before the first round."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.algorithms.base import OPEN, Algorithm, Known, Setup, State, check_only_trains
from umbel.algorithms.remembered import Remembered
from umbel.algorithms.restarts import method_of
from umbel.algorithms.sharing import Sharing
from umbel.checks import check
from umbel.client.net import Net
from umbel.client.process_locks import HeldSetting
from umbel.client.seeding import drawing_from
from umbel.data.federation import Federation
from umbel.engines.choice import EngineSettings, make_engine
from umbel.engines.clipping_and_noise import Private
from umbel.engines.privacy import Privacy
from umbel.engines.sequential import Sequential
from umbel.engines.vectorised import Vectorised
from umbel.flow import Engine, are_elsewhere
from umbel.preflight.examples import check_batches
from umbel.preflight.network import check_fit
from umbel.preflight.objective import check_own_metrics
from umbel.run.engine_match import check_holds
from umbel.run.participation import Participation, Weighted, smallest_share
from umbel.run.returned_values import as_state
from umbel.seeds import Stream, seed_of
from umbel.settings import argument

log = logging.getLogger(__name__)


UNTIL_STOPPED: Final = "until-stopped"

NumRounds = int | Literal["until-stopped"]
"""How many rounds a run has; "until-stopped": somebody ends it, or a goal or a time."""

LOGGER = logging.getLogger("umbel")

SILENCE = HeldSetting(lambda: LOGGER.level, LOGGER.setLevel, logging.CRITICAL)
"""The level of umbel's logger, which all threads share."""


def unsaid() -> AbstractContextManager[None]:
    """Log nothing inside the `with` block, as the run itself logs the same before or after it.

    Messages of other threads are lost in the meantime, too.
    """
    return SILENCE.held()


def total(rounds: NumRounds) -> int:
    """Return the number of rounds, or `OPEN`. Raises `UsageError` for a number below 1."""
    if rounds == UNTIL_STOPPED:
        return OPEN
    number: int = argument("rounds", rounds, int)
    check(number >= 1, "rounds", number, f'1 or more, or "{UNTIL_STOPPED}"')
    return number


def check_settings(
    seed: int, participation: float | Participation, evaluate_every: int, private: bool = False
) -> None:
    """Raise `UsageError` for values that neither a run nor an experiment can have."""
    check(seed >= 0, "seed", seed, "0 or more")
    if not isinstance(participation, Participation):
        check(0 < participation <= 1, "participation", participation, "in (0, 1]")
    elif isinstance(participation, Weighted):
        expected = "a list with privacy.clip: clients do not tell how many examples they have"
        told = bool(participation.weights) or not private
        check(told, "participation.weights", participation.weights, expected)
    check(evaluate_every >= 1, "evaluate_every", evaluate_every, "1 or more")


def check_private(algorithm: Algorithm[Any], privacy: Privacy, net: Net | None = None) -> None:
    """Raise `UsageError` if clients would send values that noise can't protect or makes useless."""
    if privacy.clip is None:
        return
    method, moved = method_of(algorithm), [] if net is None else net.layout.rest
    together = "possible together with algorithm.share, algorithm.kept or algorithm.local.scheme"
    check(not isinstance(method, Sharing | Remembered), "privacy.clip", privacy.clip, together)
    expected = f"for {type(method).__name__}: its clients send in evaluations what adapting changes"
    check(not method.traits.adapts, "privacy.clip", privacy.clip, expected)
    expected = f"for {type(method).__name__}: its clients send more than updates, unprotected"
    check_only_trains(method, "privacy.clip", privacy.clip, expected)
    named = [entry.name for entry in moved][:1]
    # Noise may make a running variance negative.
    expected = f"allowed: noise can't be added to statistics, as {named}; use group norm"
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
    """Return the engine of a run: make one by settings, or check the given object.

    `settings` are those of the method and of fine-tuning, and `metrics` the run's further metrics.
    Clients on other machines check and protect their work themselves. Raises `UsageError` if the
    network or your own metric does not fit the federation, or if the engine was made for another
    network or federation.
    """
    expected = "an engine: it is a class, so create an object of it"
    check(not isinstance(chosen, type), "engine", getattr(chosen, "__name__", ""), expected)
    if isinstance(chosen, EngineSettings):
        engine = make_engine(net, federation, chosen)
    elif are_elsewhere(chosen):
        return chosen
    else:
        engine = chosen
        # The engine inside a wrapper, such as one that a test puts around it.
        within = getattr(chosen, "engine", chosen)
        if isinstance(within, Sequential | Vectorised):
            check_holds(within, net, federation)
        with drawing_from(seed=0):
            check_fit(net, federation)
    for one in settings:
        check_batches(net, federation, one)
    check_own_metrics(net, federation, metrics)
    open_ = privacy.clip is None or isinstance(engine, Private)
    return engine if open_ else Private(engine, privacy, cohort=cohort)


def setup_of(
    net: Net,
    num_rounds: int,
    participation: float | Participation,
    seed: int,
    names: tuple[str, ...],
    groups: NDArray[np.int64] | None,
    concepts: NDArray[np.int64] | None = None,
    num_steps: int = 1,
) -> Setup:
    """What a method may know of these clients before a round."""
    return Setup(
        num_clients=len(names),
        num_rounds=num_rounds,
        num_steps=num_steps,
        participation=smallest_share(participation),
        layout=net.layout,
        # Model 0 of a seed is the same for every method: comparisons start equal.
        new_model=lambda number: net.new(seed_of(seed, Stream.MODEL, number)),
        seed=seed_of(seed, Stream.SETUP),
        groups=None if groups is None else torch.from_numpy(groups),
        concepts=None if concepts is None else torch.from_numpy(concepts),
        names=names,
    )


def first_state(algorithm: Algorithm[Any], net: Net, setup: Setup) -> State:
    """Return the state of a method before the first round, checked."""
    algorithm.check(Known(setup.participation, setup.num_clients, net.layout))
    state: State = as_state(algorithm.init(setup), setup, net.dtype)
    return state
