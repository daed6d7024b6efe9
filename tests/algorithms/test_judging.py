"""Models that clients judge may fit them arbitrarily badly: that is no fault of the client."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import umbel
from umbel.client.work import ChooseByLoss, JointScore, MeanLoss, MixtureWeights
from umbel.engines.choice import EngineSettings
from umbel.flow import Engine, Replies, Request, Rows
from umbel.testing import blobs, mlp

GROUPS = [0, 0, 0, 0, 0, 0, 1, 1]


def in_two_units() -> umbel.Federation:
    """Eight clients of one linear regression; the last two measure y in a unit 1/60 as large."""
    rng = np.random.default_rng(0)
    clients = []
    for group in GROUPS:
        x = rng.normal(size=(40, 3)).astype(np.float32)
        y = (x @ np.array([[1.0], [2.0], [-1.0]])).astype(np.float32)
        clients.append((x, y * (60 if group else 1)))
    return umbel.Federation.from_arrays(clients, groups=GROUPS)


LINEAR = umbel.Net(lambda: torch.nn.Linear(3, 1), umbel.REGRESSION)


@pytest.mark.parametrize(
    "method",
    [
        umbel.IFCA(),
        umbel.LCFL(),
        umbel.LCFL(metric="loss-gap"),
        umbel.Joint(local=umbel.LocalTraining(epochs=1)),
        umbel.FedEM(2),
        umbel.Restarts(umbel.IFCA(), restarts=2, trial_rounds=2),
    ],
    ids=lambda method: type(method).__name__,
)
def test_nobody_is_refused_where_a_model_of_others_does_not_fit(method: Any) -> None:
    for _, record in umbel.Run(method, in_two_units(), LINEAR).rounds(3):
        assert record.refused == {}
    if isinstance(method, umbel.IFCA | umbel.LCFL):
        assert record.ari == 1


Spoil = Callable[[dict[str, Tensor], Tensor], None]


@dataclass
class Lying:
    """An engine of whose clients the last spoils what it sends."""

    engine: Engine
    spoil: Spoil

    def send(self, request: Request) -> Replies:
        replies = self.engine.send(request)
        columns = {name: column.clone() for name, column in replies.columns.items()}
        self.spoil(columns, replies.clients == 7)
        return replace(replies, columns=columns)


def with_a_liar(method: umbel.LCFL, spoil: Spoil) -> tuple[umbel.State, umbel.Record]:
    run = umbel.Run(method, blobs(), mlp(dtype=torch.float64), seed=3)
    return next(replace(run, engine=Lying(run.clients, spoil)).rounds(1))


def far_model(columns: dict[str, Tensor], who: Tensor) -> None:
    if "update" in columns:
        columns["update"][who] = columns["update"][who].sign() * 9000


def test_one_far_model_leaves_the_others_losses_usable_and_is_in_a_cluster_by_itself() -> None:
    state, record = with_a_liar(umbel.LCFL(num_clusters=3), far_model)
    assert record.refused == {}
    assert state.labels.bincount().min() == 1
    assert len(set(state.labels[:7][::2].tolist())) == len(set(state.labels[1:7:2].tolist())) == 1
    assert len(set(state.labels.tolist())) == 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30, -1e30, -1e11])
def test_a_judge_that_sends_no_numbers_is_set_aside_and_the_others_are_clustered(
    value: float,
) -> None:
    def spoil(columns: dict[str, Tensor], who: Tensor) -> None:
        if "losses" in columns:
            columns["losses"][who] = value

    state, record = with_a_liar(umbel.LCFL(), spoil)
    assert list(record.refused) == [7]
    assert "losses" in record.refused[7]
    assert "diverged" not in record.refused[7]
    assert state.labels[:7].tolist() in ([0, 1, 0, 1, 0, 1, 0], [1, 0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_a_model_without_a_finite_loss_counts_as_the_worst(engine: Any) -> None:
    """Taken as it is, NaN would be the lowest loss, and the highest score."""
    run = umbel.Run(umbel.FedAvg(), in_two_units(), LINEAR, engine=EngineSettings(engine, "cpu"))
    models = torch.stack([torch.full((4,), value) for value in (math.nan, 1e30, 0.5)])
    ctx, local = run.context(0, 1), umbel.LocalTraining()

    def ask(request: Request) -> Tensor:
        return next(iter(run.clients.send(request).columns.values()))

    losses = ask(ctx.request(MeanLoss(), {"models": models}))
    assert losses[:, :2].tolist() == [[1e12, 1e12]] * 8
    assert (losses[:, 2] < 1e6).all()
    assert ask(ctx.request(MeanLoss(), {"models": models[:2]})).isnan().all()
    chosen = run.clients.send(ctx.request(ChooseByLoss(local), {"models": models}))
    assert chosen.columns["chosen"].tolist() == [2] * 8
    moved = {"models": models, "moves": torch.ones(3, 4)}
    assert ask(ctx.request(JointScore(local), moved)).argmax(1).tolist() == [2] * 8
    each = Rows(torch.full((1, 3), 1 / 3), torch.zeros(8, dtype=torch.long))
    weights = ask(ctx.request(MixtureWeights(), {"models": models}, memory=each))
    assert weights.tolist() == [[0, 0, 1]] * 8
