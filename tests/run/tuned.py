"""An experiment whose clients tune what they are served, and what comes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from umbel.algorithms import (
    IFCA,
)
from umbel.client.work import Evaluation, LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.engines import Sequential
from umbel.flow import Request, Rows
from umbel.networks import MLP
from umbel.result.run import Experiment, Run
from umbel.run.personal import Personal
from umbel.run.scores import ClientScores

LOCAL = LocalTraining(epochs=2, batch_size=10)


PERSONAL = Personal(epochs=(0, 1, 3), lr=0.1, batch_size=10, validation_fraction=0.25)


EXPERIMENT = Experiment(
    replace(ROTATED_DIGITS, clients=8, examples=(40, 60)),
    MLP((16,)),
    IFCA(local=LOCAL, num_clusters=2),
    name="small",
    rounds=3,
    personal=PERSONAL,
)


def opened(**changes: Any) -> Run:
    return replace(EXPERIMENT, **changes).open(Sources.default())


def ended(run: Run, rounds: int = 3) -> ClientScores:
    """The scores on the test at the end."""
    *_, (_, _, scores) = run.scored_rounds(rounds, run.start(rounds), 0)
    assert scores is not None
    assert scores.tuning is not None
    return scores


def of_each(scores: ClientScores) -> Tensor:
    """(M, P) what each client is served in the end."""
    models = scores.served.models
    return models.take(torch.arange(len(models.index)))


def evaluated(run: Run, models: Tensor, split: Any) -> dict[str, Tensor]:
    clients = torch.arange(len(models))
    asked = Request(
        Evaluation(split), clients, [0] * len(models), {}, {"theta": Rows(models, clients)}
    )
    columns = Sequential(run.net, run.federation).send(asked).columns
    return {name: columns[name] / columns["num_examples"] for name in ("loss", "right")}
