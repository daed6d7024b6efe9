"""Fields of states: what a checkpoint can hold is taken, and all else is refused in every run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import umbel
from tests.federations import blobs
from umbel.algorithms.base import Served, Setup, State
from umbel.algorithms.restarts import RestartsState
from umbel.flow import Flow
from umbel.folder import checkpoint
from umbel.run.records import Record
from umbel.run.returned_values import as_state
from umbel.server.ask import Context
from umbel.testing import assert_same_state

ONE = torch.ones(2)


@dataclass(frozen=True)
class Holding(State):
    """A state with a field of any kind."""

    extra: Any = None


@dataclass(frozen=True)
class Pair:
    """A value of a method's own."""

    first: torch.Tensor


def holding(extra: Any) -> Holding:
    return Holding(torch.zeros(1, 5), torch.zeros(3, dtype=torch.long), extra)


def setup() -> Setup:
    net = umbel.Net(lambda: torch.nn.Linear(4, 1))
    return Setup(
        num_clients=3, num_rounds=1, participation=1.0, layout=net.layout, new_model=net.new, seed=0
    )


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (Pair(ONE), "'Pair'"),
        ((ONE, 2), "'tuple of torch.float32, int'"),
        ({"a": ONE}, "'dict'"),
        (np.ones(2), "'ndarray'"),
        (torch.eye(3).to_sparse(), "'torch.float32 (torch.sparse_coo)'"),
        (2**5000, "'int'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_field_that_no_checkpoint_holds_is_refused_by_name(extra: Any, said: str) -> None:
    rivals = RestartsState(torch.zeros(1, 5), torch.zeros(3, dtype=torch.long), (holding(extra),))
    for state in (holding(extra), rivals):
        with pytest.raises(umbel.UsageError) as refused:
            as_state(state, setup(), torch.float32)
        start = f"extra of the state that init returns: {said} is not what a checkpoint holds: "
        assert str(refused.value).startswith(start)


@pytest.mark.parametrize(
    "extra",
    [
        *(None, True, 3, 0.5, "text", (), (1, (2.5, "a"), None), [1, [2]]),
        *({"a": [1, {"b": None}]}, ONE, ONE.bool(), (ONE, ONE[:0]), np.float64(1.5), 10**1000),
    ],
    ids=str,
)
def test_what_is_taken_reads_back_the_same(extra: Any, tmp_path: Path) -> None:
    state = as_state(holding(extra), setup(), torch.float32)
    checkpoint.save(tmp_path / "c.safetensors", state, 1)
    found, _ = checkpoint.load(tmp_path / "c.safetensors", holding(extra))
    assert_same_state(found, state)
    assert isinstance(found.extra, type(extra)) or isinstance(extra, float)


@dataclass(frozen=True)
class Doubling(umbel.FedAvg):
    """A method that returns values of another type, from one of its functions."""

    where: str = "round"

    def init(self, setup: Setup) -> State:
        first = super().init(setup)
        return replace(first, models=first.models.double()) if self.where == "init" else first

    def round(self, state: State, ctx: Context) -> Flow[State]:
        after = yield from super().round(state, ctx)
        return replace(after, models=after.models.double()) if self.where == "round" else after

    def serve(self, state: State, ctx: Context) -> Flow[Served]:
        served = yield from super().serve(state, ctx)
        models = replace(served.models, table=served.models.table.double())
        return replace(served, models=models) if self.where == "serve" else served


@pytest.mark.parametrize(
    ("where", "which"),
    [
        ("init", "models of the state that init returns"),
        ("round", "models of the state that round returns"),
        ("serve", "models that serve returns"),
    ],
)
def test_models_of_another_type_than_the_networks_are_refused(where: str, which: str) -> None:
    net = umbel.Net(lambda: torch.nn.Linear(6, 3))
    run = umbel.Run(Doubling(where=where), blobs(), net)
    said = f"{which}: torch.float64 is not torch.float32, the type of the network's values"
    with pytest.raises(umbel.UsageError, match=said):
        next(run.rounds(2))


@dataclass(frozen=True)
class Measuring(umbel.FedAvg):
    """A method that measures something."""

    measured: Any = None

    def measure(self, state: State) -> Any:  # noqa: ARG002
        return self.measured


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (
            {"accuracy": 0.99},
            "measure: 'accuracy' is not a free name: records use it already, so rename it",
        ),
        ({"gap": "wide"}, "measure: gap: 'wide' is not a number"),
    ],
)
def test_what_a_method_measures_takes_no_other_name_and_is_numbers(
    measured: Any, said: str
) -> None:
    net = umbel.Net(lambda: torch.nn.Linear(6, 3))
    run = umbel.Run(Measuring(measured=measured), blobs(), net, metrics=("log-loss",))
    with pytest.raises(umbel.UsageError) as refused:
        next(run.rounds(2))
    assert said in str(refused.value)


def test_measures_may_be_numbers_of_any_library_and_unknown() -> None:
    measured = {
        "a": np.float32(0.5),
        "b": torch.tensor(2),
        "c": float("nan"),
        "d": np.int64(3),
        "e": None,
    }
    net = umbel.Net(lambda: torch.nn.Linear(6, 3))
    _, record = next(umbel.Run(Measuring(measured=measured), blobs(), net).rounds(1))
    assert record.measures == {"a": 0.5, "b": 2, "c": None, "d": 3, "e": None}
    assert Record.from_json(record.to_json()) == record


@dataclass(frozen=True)
class Later(State):
    """What a method may wish to have once it has clusters."""

    centres: torch.Tensor


@dataclass(frozen=True)
class Changing(umbel.FedAvg):
    """A method that returns another kind of state from its second round on."""

    def round(self, state: State, ctx: Context) -> Flow[State]:
        after = yield from super().round(state, ctx)
        return Later(after.models, after.labels, after.models) if ctx.round else after


def test_a_round_returns_the_kind_of_state_that_it_was_given() -> None:
    run = umbel.Run(Changing(), blobs(), umbel.Net(lambda: torch.nn.Linear(6, 3)))
    with pytest.raises(umbel.UsageError, match="the state that round returns: 'Later' is not"):
        list(run.rounds(3))
