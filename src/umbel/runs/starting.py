"""What a run starts from: its settings, and the state before its first round."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.algorithms.base import Algorithm, Setup, State
from umbel.algorithms.restarts import method_of
from umbel.checks import check
from umbel.client.net import Net
from umbel.engines.privacy import Privacy
from umbel.seeds import Stream, seed_of


def check_settings(seed: int, participation: float, evaluate_every: int) -> None:
    """Raise `UsageError` for what neither a run nor an experiment can have."""
    check(seed >= 0, "seed", seed, "0 or more")
    check(0 < participation <= 1, "participation", participation, "in (0, 1]")
    check(evaluate_every >= 1, "evaluate_every", evaluate_every, "1 or more")


def check_private(algorithm: Algorithm[Any], privacy: Privacy) -> None:
    """Raise `UsageError` where evaluation would send what no noise of a round protects."""
    method = method_of(algorithm)
    protected = privacy.clip is None or not method.adapts
    expected = f"for {type(method).__name__}: its clients send in evaluations what adapting changes"
    check(protected, "privacy.clip", privacy.clip, expected)


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
    state: State = algorithm.init(setup)
    return state
