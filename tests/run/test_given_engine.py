"""An engine that is given to a run was made for its network and its clients, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

import umbel
from tests.federations import SIZES, blobs
from umbel import FedAvg, Federation, Net, Run, UsageError
from umbel.engines import Sequential
from umbel.engines.processes.workers import Workers
from umbel.flow import Engine, Replies, Request

Make = Callable[[Net, Federation], Engine]


@dataclass
class Around:
    """An engine around one of this process, as one of actors of a Ray cluster is."""

    engine: Engine

    def send(self, request: Request) -> Replies:
        return self.engine.send(request)


KINDS: list[Make] = [
    Sequential,
    lambda net, federation: Around(Sequential(net, federation)),
]

NAMES = ["sequential", "around"]

NET = Net(lambda: nn.Linear(6, 3))


def with_other_values() -> Federation:
    there = blobs()
    return replace(there, train=replace(there.train, x=there.train.x + 1))


@pytest.mark.parametrize("make", KINDS, ids=NAMES)
@pytest.mark.parametrize(
    ("federation", "said"),
    [
        (blobs(SIZES[:4]), "it holds 4 clients, but the run's federation 6"),
        (with_other_values(), "it holds other training examples than the run's federation"),
    ],
    ids=["fewer", "values"],
)
def test_an_engine_with_other_clients_than_the_run_is_refused(
    make: Make, federation: Federation, said: str
) -> None:
    run = Run(FedAvg(), blobs(), NET, engine=make(NET, federation))
    with pytest.raises(UsageError, match=f"^engine: {said}; write .*net, federation. with the net"):
        next(run.rounds(1))


class Base(nn.Module):
    """A linear layer upon a frozen one."""

    def __init__(self, fill: float) -> None:
        super().__init__()
        self.trunk, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
        nn.init.constant_(self.trunk.weight, fill)
        self.trunk.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.trunk(x))  # type: ignore[no-any-return]


class Shifted(nn.Module):
    """A linear layer after a shift of its inputs, which is not trained."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.register_buffer("shift", torch.full((6,), shift))
        self.register_buffer("mask", torch.full((6,), -torch.inf), persistent=False)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x - self.shift)  # type: ignore[no-any-return, operator]


def chain(between: nn.Module) -> Net:
    return Net(lambda: nn.Sequential(nn.Linear(6, 8), between, nn.Linear(8, 3)))


@pytest.mark.parametrize("make", KINDS, ids=NAMES)
@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        (
            Net(lambda: nn.Linear(6, 4)),
            NET,
            r"its network has weight \(4, 6\), but that of the run has weight \(3, 6\)",
        ),
        (Net(NET.build, umbel.REGRESSION), NET, "its network has another objective"),
        (chain(nn.Tanh()), chain(nn.ReLU()), "its network is not built like that of the run"),
        (
            Net(lambda: Base(0.1)),
            Net(lambda: Base(0.2)),
            "the frozen values of its network differ",
        ),
        (
            Net(lambda: Shifted(0)),
            Net(lambda: Shifted(2)),
            "the constants of its network differ from those of the run; write",
        ),
    ],
    ids=["shape", "objective", "structure", "frozen", "constants"],
)
def test_an_engine_with_another_network_than_the_run_is_refused(
    make: Make, there: Net, here: Net, said: str
) -> None:
    run = Run(FedAvg(), blobs(), here, engine=make(there, blobs()))
    with pytest.raises(UsageError, match=f"^engine: {said}"):
        next(run.rounds(1))


@pytest.mark.parametrize("make", KINDS, ids=NAMES)
def test_an_engine_made_anew_of_the_same_is_taken(make: Make) -> None:
    federation = blobs().with_validation(0.2)
    again = blobs().with_validation(0.2)
    net = Net(lambda: Base(0.1).double())
    engine = make(Net(lambda: Base(0.1).double()), again)
    _, record = next(Run(FedAvg(), federation, net, engine=engine).rounds(1))
    assert record.untimed() == next(Run(FedAvg(), federation, net).rounds(1))[1].untimed()


def test_what_is_no_engine_is_refused() -> None:
    kind: Any = Sequential
    with pytest.raises(UsageError, match=r"^engine: 'Sequential' is not an engine: it is a class"):
        next(Run(FedAvg(), blobs(), NET, engine=kind).rounds(1))
    settings: Any = umbel.EngineSettings()
    with pytest.raises(UsageError, match=r"^engine: 'EngineSettings' is not an engine of this"):
        Workers(settings, 2)
    counts: list[Any] = ["2", None, 0, -3, 2.5, True]
    for count in counts:
        with pytest.raises(UsageError, match=r"^count: .* is not a whole number of processes"):
            Workers(Sequential(NET, blobs()), count)


def test_validation_examples_are_set_apart_before_the_engine_is_made() -> None:
    federation = blobs([9 * size for size in SIZES])
    personal = umbel.Personal(epochs=(1,), validation_fraction=0.2)
    with pytest.raises(UsageError, match=r"make both of federation\.with_validation\(0\.2\)"):
        Run(FedAvg(), federation, NET, engine=Sequential(NET, federation), personal=personal)
    apart = federation.with_validation(0.2)
    run = Run(FedAvg(), apart, NET, engine=Sequential(NET, apart), personal=personal)
    assert len(list(run.rounds(1))) == 1
