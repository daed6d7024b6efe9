"""What does not fit is refused before the first round, in a sentence that says what to write."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import umbel
from tests.kinds.networks import OwnStatistics, Recurrent, Transformer, chain, normed
from umbel.client.objectives import BINARY, CLASSIFICATION, REGRESSION, Objective
from umbel.data.federation import Federation
from umbel.engines import EngineSettings, Vectorised, make_engine
from umbel.networks import MLP


def clients(x: Any, y: Any, count: int = 3) -> Federation:
    return Federation.from_arrays([(x, y)] * count, test_fraction=0.2)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


LABELS = np.arange(12) % 3


class Transposed(nn.Module):
    """Logits (B, T, C), as sequence models give them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


@pytest.mark.parametrize(
    ("build", "objective", "x", "y", "message"),
    [
        (chain(6, 3), CLASSIFICATION, numbers(12, 6), LABELS * 1.0, "give labels as whole numbers"),
        (chain(6, 1), REGRESSION, numbers(12, 6), LABELS, "give y as floating-point numbers"),
        (
            chain(6, 2),
            CLASSIFICATION,
            numbers(12, 6),
            LABELS,
            "the network's outputs: 2 is not one for each of 3 classes",
        ),
        (chain(6, 1), CLASSIFICATION, numbers(12, 6), LABELS % 2, r"pass umbel\.BINARY to Net"),
        (
            chain(6, 3),
            REGRESSION,
            numbers(12, 6),
            numbers(12),
            r"outputs have shape \(B, 3\) and the targets y \(B,\)",
        ),
        (
            chain(6, 6),
            REGRESSION,
            numbers(12, 6),
            numbers(12, 2, 3),
            r"outputs have shape \(B, 6\) and the targets y \(B, 2, 3\)",
        ),
        (
            Transposed,
            CLASSIFICATION,
            numbers(12, 5, 2),
            np.arange(60).reshape(12, 5) % 4,
            r"\(B, 5, 4\) and the labels y \(B, 5\): the classes must be dimension 1.*movedim",
        ),
        (chain(6, 1), BINARY, numbers(12, 6), LABELS, "not 0 or 1 everywhere"),
        (
            lambda: nn.Linear(6, 3),
            CLASSIFICATION,
            numbers(12, 2, 3),
            LABELS,
            r"does not take inputs of shape \(2, 3\); begin it with nn\.Flatten\(\)",
        ),
        (
            lambda: nn.Conv2d(3, 3, 2),
            CLASSIFICATION,
            numbers(12, 1, 4, 4),
            LABELS,
            r"does not take inputs of shape \(1, 4, 4\)",
        ),
        (
            lambda: nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(8, 3)),
            CLASSIFICATION,
            np.full((12, 4), 7),
            LABELS,
            "not a row of the network's embedding.*make num_embeddings larger",
        ),
        (
            lambda: nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(8, 3)),
            CLASSIFICATION,
            np.full((12, 4), 7.0),
            LABELS,
            "give x as integers",
        ),
        (chain(4, 3), CLASSIFICATION, np.full((12, 4), 7), LABELS, "give x as floats"),
        (
            lambda: nn.Sequential(nn.LSTM(2, 3)),
            CLASSIFICATION,
            numbers(12, 5, 2),
            LABELS,
            "the network returns a tuple, and one tensor is needed",
        ),
        (
            chain(6, 3),
            Objective(lambda o, y: (o - y).mean(), lambda o, y: (o - y).mean(1)),
            numbers(12, 6),
            numbers(12, 3),
            r"objective\.losses: \(\) is not one value an example: \(2,\)",
        ),
        (
            OwnStatistics,
            CLASSIFICATION,
            numbers(12, 6),
            LABELS,
            r"changes the buffer running.*Net\(\.\.\., moving=\['running'\]\)",
        ),
    ],
)
@pytest.mark.parametrize("engine", ["auto", "sequential"])
def test_what_does_not_fit_is_refused_before_the_first_round(
    build: Callable[[], nn.Module],
    objective: Objective,
    x: np.ndarray,
    y: np.ndarray,
    message: str,
    engine: Any,
) -> None:
    run = umbel.Run(
        umbel.FedAvg(),
        clients(x, y),
        umbel.Net(build, objective),
        engine=EngineSettings(name=engine, device="cpu"),
    )
    with pytest.raises(umbel.UsageError, match=message):
        next(run.rounds(1))


def test_a_mini_batch_of_one_under_batch_normalisation_is_refused_with_the_clients_name() -> None:
    sizes = (8, 9)
    train = [(numbers(size, 6), np.arange(size) % 3) for size in sizes]
    federation = Federation.from_arrays(train, train, names=["north", "south"])
    net = umbel.Net(normed(lambda: nn.BatchNorm1d(8)))
    local = umbel.LocalTraining(batch_size=4, epochs=1)
    with pytest.raises(umbel.UsageError, match=r"client south: its 9 examples.*drop_last = true"):
        next(umbel.Run(umbel.FedAvg(local=local), federation, net).rounds(1))
    whole = umbel.LocalTraining(batch_size=4, epochs=1, drop_last=True)
    next(umbel.Run(umbel.FedAvg(local=whole), federation, net).rounds(1))
    images = Federation.from_arrays([(numbers(5, 1, 4, 4), np.arange(5) % 3)] * 2)
    several = umbel.Net(
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    )
    next(umbel.Run(umbel.FedAvg(local=local), images, several).rounds(1))


def test_more_outputs_than_classes_are_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    run = umbel.Run(umbel.FedAvg(), clients(numbers(12, 6), LABELS), umbel.Net(chain(6, 9)))
    next(run.rounds(1))
    assert "the network has 9 outputs, and there are 3 classes" in caplog.text


@pytest.mark.parametrize("num_inputs", [5, 6, 7, 10, 14, 30, 50])
def test_small_networks_of_any_width_are_batched(num_inputs: int) -> None:
    federation = clients(numbers(12, num_inputs), LABELS)
    for hidden in [(), (1,), (5,), (7,), (16,), (33,), (8, 8), (13, 3), (64, 10)]:
        net = umbel.Net(lambda hidden=hidden: MLP(hidden).build((num_inputs,), 3))  # type: ignore[misc]
        assert isinstance(make_engine(net, federation), Vectorised)
        activated = umbel.Net(  # no chain of ReLUs, so that it is tried
            lambda hidden=hidden: nn.Sequential(  # type: ignore[misc]
                MLP(hidden).build((num_inputs,), 3), nn.Tanh()
            )
        )
        assert isinstance(make_engine(activated, federation), Vectorised)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "method",
    [
        umbel.FedAvg(),
        umbel.IFCA(),
        umbel.LCFL(),
        umbel.CFLGP(),
        umbel.Joint(),
        umbel.FLACC(),
        umbel.FedEM(),
        umbel.PFedMe(),
        umbel.PerFedAvg(),
    ],
    ids=lambda method: type(method).__name__,
)
def test_recurrent_networks_run_under_every_method(
    kind: Callable[..., nn.Module], method: umbel.Algorithm[Any], caplog: pytest.LogCaptureFixture
) -> None:
    federation = clients(numbers(12, 4, 2), LABELS)
    net = umbel.Net(lambda: Recurrent(kind))
    with caplog.at_level(logging.INFO):
        *_, (state, record) = umbel.Run(method, federation, net).rounds(2)
    assert state.models.isfinite().all()
    assert record.loss is not None
    said = [entry for entry in caplog.records if "one after another" in entry.getMessage()]
    assert len(said) == 1


def test_a_causal_mask_does_not_poison_the_updates() -> None:
    tokens = np.arange(72).reshape(12, 6) % 7
    net = umbel.Net(Transformer)
    assert not any("mask" in entry.name for entry in net.layout.rest)
    *_, (state, record) = umbel.Run(umbel.FLACC(), clients(tokens, tokens), net).rounds(2)
    assert state.models.isfinite().all()
    assert record.refused == {}


def test_divergence_says_what_happened_and_what_to_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unscaled = clients(numbers(12, 6) * 1e6, numbers(12))
    run = umbel.Run(umbel.FedAvg(), unscaled, umbel.Net(chain(6, 1), REGRESSION))
    expected = r"training diverged for 3 of 3 clients.*scale the inputs, which reach .*e\+06.*lower"
    with pytest.raises(umbel.QuorumError, match=expected):
        next(run.rounds(1))
    some = Federation.from_arrays(
        [(numbers(12, 6) * scale, numbers(12)) for scale in (1, 1, 1, 1e6)]
    )
    small = umbel.LocalTraining(lr=0.01)
    run = umbel.Run(umbel.FedAvg(local=small), some, umbel.Net(chain(6, 1), REGRESSION))
    records = [record for _, record in run.rounds(3)]
    assert all(set(record.refused) == {3} for record in records)
    assert "training diverged there, or the reply is faulty" in records[0].refused[3]
    warnings = [entry for entry in caplog.records if "training diverged" in entry.getMessage()]
    assert len(warnings) == 1


def test_numbers_spoilt_on_purpose_are_not_called_divergence() -> None:
    federation, net = clients(numbers(12, 6), LABELS), umbel.Net(chain(6, 3))
    faults = umbel.Faults(not_finite=1.0)
    with pytest.raises(umbel.QuorumError, match=r"^round 0: 0 of 3 clients gave a usable reply"):
        next(umbel.Run(umbel.FedAvg(), federation, net, faults=faults).rounds(1))
