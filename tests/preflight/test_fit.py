"""What does not fit is refused before the first round, in a sentence that says what to write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.engines.modules import OwnStatistics, chain, normed
from tests.preflight.fitted import LABELS, clients, numbers
from umbel.client.objectives import BINARY, CLASSIFICATION, REGRESSION, Objective
from umbel.data.federation import Federation
from umbel.engines import make_engine


class Counting(nn.Module):
    """Counts its passes in a whole number."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: Tensor
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        out: Tensor = self.layer(x) / (1 + 0.1 * self.steps)
        return out


class Averaging(nn.Module):
    """Keeps a mean of what it has seen, as a new tensor each time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        out: Tensor = self.layer(x - self.mean)
        return out


def test_a_moving_buffer_that_is_replaced_is_refused() -> None:
    net = umbel.Net(Averaging, moving=["mean"])
    said = r"training replaces the buffer mean .* write into it, as by self\.mean\.copy_"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(net, clients(numbers(12, 6), LABELS))


class Shifting(nn.Linear):
    """Takes its inputs to be its own."""

    def __init__(self) -> None:
        super().__init__(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.sub_(0.5))


class Hollow(Shifting):
    """Has first values that nobody gave it."""

    def reset_parameters(self) -> None:
        nn.init.constant_(self.bias, torch.nan)
        nn.init.zeros_(self.weight)


class Looking(Shifting):
    """Looks up what is not there."""

    def forward(self, x: Tensor) -> Tensor:
        return {"five": super().forward(x)}["six"]


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
            chain(6, 2),
            CLASSIFICATION,
            numbers(12, 6),
            numbers(12, 3) > 0,
            r"where the labels are 3 answers of yes or no, pass umbel\.BINARY to Net",
        ),
        (
            chain(6, 3),
            REGRESSION,
            numbers(12, 6),
            numbers(12),
            r"outputs have shape \(B, 3\) and the targets y \(B,\)",
        ),
        (
            Transposed,
            CLASSIFICATION,
            numbers(12, 5, 2),
            np.arange(60).reshape(12, 5) % 4,
            r"\(B, 5, 4\) and the labels y \(B, 5\): the classes must be dimension 1.*movedim",
        ),
        (chain(6, 1), BINARY, numbers(12, 6), LABELS, "y: 2 is not 0 or 1, the"),
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
            "the network returns a tuple, but one tensor is needed",
        ),
        (
            chain(6, 3),
            Objective(lambda o, y: (o - y).mean(), lambda o, y: (o - y).mean(1)),
            numbers(12, 6),
            numbers(12, 3),
            r"objective\.losses: \(\) is not one value an example: \(2,\)",
        ),
        (
            chain(1, 1),
            Objective(lambda o, y: ((o - y) ** 2).mean(1), lambda o, y: (o[:, 0] - y).abs()),
            numbers(12, 1),
            numbers(12),
            r"objective\.losses: the value of an example depends on the others",
        ),
        (
            chain(6, 3),
            Objective(
                lambda o, y: (o.argmax(1) != y).float(), lambda o, y: (o.argmax(1) == y).float()
            ),
            numbers(12, 6),
            LABELS,
            "the loss has no gradient",
        ),
        (
            Counting,
            CLASSIFICATION,
            numbers(12, 6),
            LABELS,
            "changes the buffer steps.*counters can't be averaged",
        ),
        (chain(6, 2), CLASSIFICATION, numbers(12, 6), LABELS % 2 + 1, "labels count from 0"),
        (
            OwnStatistics,
            CLASSIFICATION,
            numbers(12, 6),
            LABELS,
            r"buffer running.*Net\(\.\.\., moving=\['running'\]\), or moving = .'running'.",
        ),
        (
            Shifting,
            CLASSIFICATION,
            numbers(12, 6),
            LABELS,
            r"writes in its inputs.*x\.sub_\(0\.5\)",
        ),
        (
            Hollow,
            CLASSIFICATION,
            numbers(12, 6),
            LABELS,
            "Net: bias begins with nan: give it finite",
        ),
        (Looking, CLASSIFICATION, numbers(12, 6), LABELS, r"shape \(6,\) \(KeyError: 'six'\)"),
        (
            lambda: nn.Sequential(nn.Embedding(9, 2, max_norm=1.0), nn.Flatten(), nn.Linear(8, 3)),
            CLASSIFICATION,
            np.full((12, 4), 7),
            LABELS,
            r"writes in the parameter .*weight, as nn\.Embedding",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_the_first_round(
    build: Callable[[], nn.Module],
    objective: Objective,
    x: np.ndarray,
    y: np.ndarray,
    message: str,
) -> None:
    run = umbel.Run(umbel.FedAvg(), clients(x, y), umbel.Net(build, objective))
    with pytest.raises(umbel.UsageError, match=message):
        next(run.rounds(1))


@pytest.mark.parametrize("where", ["train", "test"])
def test_a_token_out_of_range_is_refused_with_the_clients_name(where: str) -> None:
    x = np.arange(60).reshape(20, 3) % 5
    bad = x.copy()
    bad[17, 1] = 7
    y = x[:, 0] % 2
    train = [(bad if where == "train" else x, y), (x, y)]
    test = [(x, y), (bad if where == "test" else x, y)]
    federation = Federation.from_arrays(train, test, names=["north", "south"])
    net = umbel.Net(lambda: nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(9, 2)))
    run = umbel.Run(umbel.FedAvg(), federation, net)
    who = "north" if where == "train" else "south"
    with pytest.raises(umbel.UsageError, match=f"client {who}: x: an input is not a row of the"):
        next(run.rounds(1))


def test_targets_that_are_not_scaled_are_named_where_training_diverges() -> None:
    prices = 200_000 + 50_000 * numbers(12)
    net = umbel.Net(chain(3, 1), REGRESSION)
    run = umbel.Run(umbel.FedAvg(), clients(numbers(12, 3), prices), net)
    with pytest.raises(umbel.QuorumError, match=r"scale y, which reaches .*e\+05, to about 1"):
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
