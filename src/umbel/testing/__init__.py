"""What every method owes its users: checks to be called from anybody's own tests.

    import pytest
    from umbel.testing import CHECKS

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_method_keeps_the_contract(check):
        check(MyMethod(num_clusters=2))

Each check runs the method for a few rounds on a small federation, and raises `AssertionError` where
it does not hold. A method should have settings by which it clusters within `ROUNDS` rounds. One
that refuses a network without adapters is given one that has some.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from umbel.algorithms.base import Algorithm, State
from umbel.algorithms.restarts import method_of
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.engines.choice import EngineSettings
from umbel.engines.validation import Limits
from umbel.engines.wrappers import Faults
from umbel.flow import Engine, Replies, Request
from umbel.networks import LoRA
from umbel.runs import checkpoint
from umbel.runs.config import structured, writable
from umbel.runs.records import Record
from umbel.runs.run import Run

__all__ = [
    *("CHECKS", "ROUNDS", "Check", "assert_same_state", "check_method"),
    *("adapted_mlp", "blobs", "mlp"),
]

ROUNDS = 6
"""Number of rounds that checks run; a method should cluster within them."""

SIZES = (12, 7, 16, 9, 13, 20, 8, 11)

Check: TypeAlias = Callable[[Algorithm[Any]], None]
"""A check takes a method, and raises `AssertionError` if the method does not hold it."""


def check_method(algorithm: Algorithm[Any]) -> None:
    """Call all `CHECKS` with a method. Raises `AssertionError` for the first that does not hold."""
    for check in CHECKS:
        check(algorithm)


def blobs(
    sizes: Sequence[int] = SIZES,
    num_groups: int = 2,
    seed: int = 0,
    shape: tuple[int, ...] = (6,),
    num_classes: int = 3,
) -> Federation:
    """Make a small federation: `sizes` training examples of each client, and 8 test examples.

    Inputs are Gaussian, one blob for each class. Labels are named differently in each planted
    group; clients belong to the groups in turns.
    """
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=2, size=(num_classes, *shape))
    train, test, groups = [], [], []
    for client, size in enumerate(sizes):
        group = client % num_groups
        y = rng.integers(0, num_classes, size + 8)
        x = (centres[y] + rng.normal(size=(size + 8, *shape))).astype(np.float32)
        y = (y + group) % num_classes
        train.append((x[:size], y[:size]))
        test.append((x[size:], y[size:]))
        groups.append(group)
    return Federation.from_arrays(train, test, groups=groups, num_classes=num_classes)


def mlp(num_inputs: int = 6, num_outputs: int = 3, dtype: torch.dtype = torch.float32) -> Net:
    """Make a small fully connected network with one hidden layer, which fits `blobs`."""
    return Net(
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(num_inputs, 8), nn.ReLU(), nn.Linear(8, num_outputs)
        ).to(dtype)
    )


def adapted_mlp(dtype: torch.dtype = torch.float32) -> Net:
    """Make a small network with low-rank adapters and a head, which fits `blobs`."""

    def build() -> nn.Module:
        first, second = (LoRA(nn.Linear(size, 8), rank=2) for size in (6, 8))
        layers = (nn.Flatten(), first, nn.Tanh(), second, nn.Tanh(), nn.Linear(8, 3))
        return nn.Sequential(*layers).to(dtype)

    return Net(build)


def assert_same_state(found: Any, expected: Any, tolerance: float = 0.0) -> None:
    """Raise `AssertionError` unless two states hold the same numbers, to this tolerance."""
    for member in fields(expected):
        a, b = getattr(found, member.name), getattr(expected, member.name)
        several = isinstance(b, tuple)
        for one, other in zip(a, b, strict=True) if several else [(a, b)]:
            _assert_same(one, other, tolerance, member.name)


def _assert_same(a: Any, b: Any, tolerance: float, name: str) -> None:
    if isinstance(b, Tensor):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    elif isinstance(b, State):
        assert_same_state(a, b, tolerance)
    elif isinstance(b, float):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    else:
        assert a == b, f"{name}: {a} instead of {b}"


def engines_agree(algorithm: Algorithm[Any]) -> None:
    """One client after another and all at once give the same models, to rounding."""
    batched, one_by_one = (
        _last_state(_run(algorithm, engine=EngineSettings(name, "cpu")))
        for name in ("vectorised", "sequential")
    )
    assert_same_state(batched, one_by_one, 1e-9)


def the_order_of_replies_is_free(algorithm: Algorithm[Any]) -> None:
    """The order of replies makes no difference, to the last bit."""
    run = _run(algorithm)
    shuffled = _last_state(replace(run, engine=_Shuffled(run.clients)))
    assert_same_state(shuffled, _uninterrupted(algorithm)[-1][0])


def the_same_run_twice_gives_the_same_records(algorithm: Algorithm[Any]) -> None:
    """A run is a function of its settings and seed."""
    again = [record.untimed() for _, record in _run(algorithm).rounds(ROUNDS)]
    assert again == [record.untimed() for _, record in _uninterrupted(algorithm)]


def a_resumed_run_ends_as_the_uninterrupted_one(algorithm: Algorithm[Any]) -> None:
    """Everything that one round leaves for the next is in the state, which a file can hold."""
    run = _run(algorithm)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "state.safetensors"
        *_, (third, _) = islice(run.rounds(ROUNDS), 3)
        checkpoint.save(file, third, 3)
        restored, first = checkpoint.load(file, run.start(ROUNDS))
    assert first == 3
    resumed = _last_state(run, state=restored, first=first)
    assert_same_state(resumed, _uninterrupted(algorithm)[-1][0])


def faults_are_survived_and_named(algorithm: Algorithm[Any]) -> None:
    """Replies that are lost, late or unusable change no model for the worse."""
    faults = Faults(drop=0.1, late=0.05, not_finite=0.1, wrong_shape=0.05, huge=0.1)
    absent = 0
    for state, record in _run(algorithm, faults=faults, limits=Limits(quorum=0.0)).rounds(ROUNDS):
        assert state.models.isfinite().all()
        assert state.models.abs().max() < 100
        absent += len(record.missing) + len(record.refused)
    assert absent > 3


def requests_that_nobody_answers_are_survived(algorithm: Algorithm[Any]) -> None:
    """In every round the first request stays without any reply; then in every round the second."""
    lossy = {"faults": Faults(drop=0.3), "limits": Limits(quorum=0.0), "evaluate_every": ROUNDS}
    run = _run(algorithm, federation=blobs(SIZES[:6]), **lossy)
    for silent in count():
        engine, most = _Listening(run.clients, silent), 0
        for state, _ in replace(run, engine=engine).rounds(ROUNDS):
            assert state.models.isfinite().all()
            assert len(state.labels) == 6
            most, engine.asked = max(most, engine.asked), 0
        if most <= silent:
            return


def clients_never_asked_are_served(algorithm: Algorithm[Any]) -> None:
    """After one round with a fifth of the clients, every client has a model."""
    run = _run(algorithm, participation=0.2)
    state, record = next(run.rounds(1))
    engine = _Listening(run.clients)
    scores = replace(run, engine=engine).scores(state, run.context(0, 1))
    assert len(scores.clusters) == len(SIZES)
    assert np.isfinite(scores.accuracy).all()
    assert record.accuracy is not None
    assert abs(record.accuracy - scores.accuracy.mean()) < 1e-9
    mixed = scores.served.weights is not None
    assert mixed == method_of(algorithm).mixes, "mixes must say whether serve gives weights"
    assert engine.updated == method_of(algorithm).adapts, "adapts must say whether serve trains"


def everyone_may_take_part_and_so_may_one(algorithm: Algorithm[Any]) -> None:
    """Any share of the clients can be asked, unless the method refuses a share below 1."""
    for participation in (1.0, 1e-9):
        run = _run(algorithm, participation=participation)
        assert _last_state(run).models.isfinite().all()


def a_federation_of_one_client_is_fine_or_refused(algorithm: Algorithm[Any]) -> None:
    """Too few clients are refused before the first round, by a `UsageError`."""
    run = _run(algorithm, federation=blobs([12], num_groups=1))
    try:
        rounds = run.rounds(ROUNDS)
    except UsageError:
        return
    *_, (state, _) = rounds
    assert state.models.isfinite().all()


def its_settings_read_back_from_toml_the_same(algorithm: Algorithm[Any]) -> None:
    """An experiment can say all of its settings."""
    assert structured(writable(algorithm), Algorithm) == algorithm


def a_round_leaves_the_state_before_it_as_it_was(algorithm: Algorithm[Any]) -> None:
    """Rounds are functions: they change no tensor in place."""
    kept = [(state, deepcopy(state)) for state, _ in _run(algorithm).rounds(ROUNDS)]
    for state, copy in kept:
        assert_same_state(state, copy)


CHECKS: tuple[Check, ...] = (
    engines_agree,
    the_order_of_replies_is_free,
    the_same_run_twice_gives_the_same_records,
    a_resumed_run_ends_as_the_uninterrupted_one,
    faults_are_survived_and_named,
    requests_that_nobody_answers_are_survived,
    clients_never_asked_are_served,
    everyone_may_take_part_and_so_may_one,
    a_federation_of_one_client_is_fine_or_refused,
    its_settings_read_back_from_toml_the_same,
    a_round_leaves_the_state_before_it_as_it_was,
)
"""What every method owes its users, as functions: for `pytest.mark.parametrize`."""


class _Listening:
    """An engine that notes what clients are asked, of whom nobody answers the request `silent`."""

    def __init__(self, engine: Engine, silent: int = -1) -> None:
        self.engine, self.silent, self.asked, self.updated = engine, silent, 0, False

    def send(self, request: Request) -> Replies:
        self.asked += 1
        nobody = torch.zeros(0, dtype=torch.long)
        silent = self.asked - 1 == self.silent
        replies = self.engine.send(request.pick(nobody) if silent else request)
        self.updated |= "update" in replies.columns
        return replies


class _Shuffled:
    """An engine whose replies come in any order."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.rng = engine, np.random.default_rng(0)

    def send(self, request: Request) -> Replies:
        replies = self.engine.send(request)
        return replies.pick(torch.from_numpy(self.rng.permutation(len(replies.clients))))


def _run(algorithm: Algorithm[Any], **changes: Any) -> Run:
    """A run in double precision; of everyone, or of adapters, where the method asks for that."""
    given = {"federation": blobs(), "net": mlp(dtype=torch.float64), "participation": 0.75}
    settings = {"seed": 3, **given, **changes}
    asked_for = {"participation": 1.0, "net: no adapters": adapted_mlp(torch.float64)}
    try:
        return Run(algorithm, **settings)
    except UsageError as error:
        more = {k.split(":")[0]: v for k, v in asked_for.items() if str(error).startswith(k)}
        if not more:
            raise
        return Run(algorithm, **settings | more)


@lru_cache(maxsize=1)
def _uninterrupted(algorithm: Algorithm[Any]) -> list[tuple[State, Record]]:
    """The rounds that several checks compare others with."""
    return list(_run(algorithm).rounds(ROUNDS))


def _last_state(run: Run, **resumed: Any) -> State:
    *_, (state, _) = run.rounds(ROUNDS, **resumed)
    return state
