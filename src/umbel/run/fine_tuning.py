"""Personal models with any method: each client fine-tunes the model it is served, if that helps.

Clients train on their training examples and choose on their validation examples.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from umbel.algorithms.base import Served
from umbel.client.metrics import short
from umbel.client.work import MEMORY, PersonalEvaluation, PersonalTraining
from umbel.flow import Flow, Replies, Rows
from umbel.run.personal import Personal
from umbel.run.scores import ClientScores, Tuning
from umbel.server.ask import Context
from umbel.summary import in_short

log = logging.getLogger(__name__)

BLOCK_BYTES = 2**28
"""Bytes for versions of models: as many clients tune at once as these have room for."""

SAME = 1e-6
"""Relative difference of losses below which choices are equally good: it is rounding."""


def personalised(
    personal: Personal,
    test: ClientScores,
    validation: ClientScores,
    ctx: Context,
    metrics: tuple[str, ...],
    max_value: float,
) -> Flow[ClientScores]:
    """Have clients tune the models that they are served; return the scores of those they chose.

    `test` and `validation` are scores before tuning. A client that has no validation examples, or
    does not answer, keeps the served model. A version with a weight of a larger magnitude than
    `max_value` can't be chosen; a warning says for how many clients.
    """
    able = torch.from_numpy(np.flatnonzero(validation.num_examples > 0))
    bytes_each = len(personal.versions) * test.served.models.table[0].nbytes
    scores = _untuned(test)
    works = personal.works(max_value)
    for clients in torch.split(able, max(1, BLOCK_BYTES // bytes_each)):
        kept = yield from _versions(works, test.served, ctx, clients)
        kept, scores = yield from _chosen(personal, kept, scores, ctx)
        scores = yield from _tested(kept, scores, ctx, metrics)
    return scores


@dataclass(frozen=True)
class _Kept:
    """Versions of some clients' models, and the choice of each client among them."""

    clients: Tensor  # (N,) in increasing order
    theta: Rows  # (N, P) what each is served
    versions: Tensor  # (N, E, P)
    shares: Tensor  # (N, E) how far the choice goes from theta towards each version

    __repr__ = in_short

    def pick(self, clients: Tensor) -> _Kept:
        """The part of these clients, which are among `clients`."""
        at = torch.searchsorted(self.clients, clients)
        theta = Rows(self.theta.table, self.theta.index[at])
        return _Kept(clients, theta, self.versions[at], self.shares[at])

    def sent(self) -> dict[str, Any]:
        """The rows that each client is sent, its memory among them."""
        return {"theta": self.theta, MEMORY: Rows(self.versions, torch.arange(len(self.clients)))}

    def models(self) -> Tensor:
        """(N, P) the model that each client chose."""
        theta = self.theta.take(torch.arange(len(self.clients)))
        # theta_n + sum_e share_ne (version_ne - theta_n): an interpolated choice is between two
        # models.
        moves = self.versions - theta[:, None]
        return theta + torch.einsum("ne,nep->np", self.shares.to(theta.dtype), moves)


def _versions(
    works: Sequence[PersonalTraining], served: Served, ctx: Context, clients: Tensor
) -> Flow[_Kept]:
    """Have these clients tune their served models, one version after another."""
    models, diverged = served.models, set[int]()
    theta = Rows(models.table, models.index[clients])
    kept = _Kept(clients, theta, models.table.new_empty(len(clients), 0, 0), torch.empty(0))
    for number, work in enumerate(works, start=1):
        # Mini-batches are drawn anew for each version, as in rounds that were still to come.
        then = replace(ctx, round=ctx.round + number).asking(kept.clients, optional=True)
        sent = kept.sent()
        # Nothing to remember before the first version.
        if number == 1:
            del sent[MEMORY]
        replies = yield then.request(served.asked(work), **sent)
        own = Rows(models.table, models.index[replies.clients])
        none = torch.zeros(len(replies.clients), len(works), dtype=torch.float64)
        kept = _Kept(replies.clients, own, replies.columns[MEMORY], none)
        diverged |= set(replies.clients[replies.columns["diverged"] > 0].tolist())
    if diverged:
        log.warning(
            "personal: fine-tuning diverged for %d of %d clients, which choose among fewer "
            "versions: their numbers are not finite, or weights beyond limits.max_value; lower "
            "personal.lr",
            len(diverged),
            len(clients),
        )
    return kept


def _chosen(
    personal: Personal, kept: _Kept, scores: ClientScores, ctx: Context
) -> Flow[tuple[_Kept, ClientScores]]:
    """Have clients evaluate their versions on validation examples, and choose one.

    Returns the versions of those that chose a tuned one, and the scores with all choices.
    """
    asking = ctx.asking(kept.clients, optional=True)
    choices, shares = np.array(personal.choices), personal.shares
    work = scores.served.asked(PersonalEvaluation())
    replies = yield asking.request(work, {"shares": shares}, **kept.sent())
    # (N, C), column c for choice c; the first choice is the served model itself.
    losses, accuracies = _means(replies)
    lowest = losses.nan_to_num(nan=inf).amin(1, keepdim=True)
    good = losses <= lowest + SAME * lowest.abs()
    choice = good.int().argmax(1)  # the first of the good ones has the fewest epochs
    who, at = replies.clients.numpy(), choice[:, None]
    assert scores.tuning is not None
    told = {
        "epochs": choices[choice, 0].astype(np.int64),
        "weight": choices[choice, 1],
        "validation_loss": losses.gather(1, at)[:, 0].numpy(),
        "validation_accuracy": accuracies.gather(1, at)[:, 0].numpy(),
    }
    columns = {name: getattr(scores.tuning, name).copy() for name in told}
    for name, values in told.items():
        columns[name][who] = values
    # Clients that chose the served model need no test: its scores are known.
    moved = choice > 0
    chosen = replace(kept.pick(replies.clients[moved]), shares=shares[choice[moved]])
    return chosen, replace(scores, tuning=replace(scores.tuning, **columns))


def _tested(
    kept: _Kept, scores: ClientScores, ctx: Context, metrics: tuple[str, ...]
) -> Flow[ClientScores]:
    """Evaluate the chosen models on test examples; clients are served them from now on."""
    shares = Rows(kept.shares[:, None], torch.arange(len(kept.clients)))
    asking = ctx.asking(kept.clients, optional=True)
    work = scores.served.asked(PersonalEvaluation("test", metrics))
    replies = yield asking.request(work, shares=shares, **kept.sent())
    losses, accuracies = _means(replies)
    found = {"loss": losses, "accuracy": accuracies}
    found |= {short(name): replies.columns[name] for name in metrics}
    columns = {"loss": scores.loss, "accuracy": scores.accuracy, **scores.metrics}
    columns = {name: values.copy() for name, values in columns.items()}
    for name, values in columns.items():
        # A client that does not answer now has no scores, rather than those of the untuned model.
        values[kept.clients] = np.nan
        values[replies.clients] = found[name][:, 0]
    served, models = scores.served, scores.served.models
    # Chosen models become further rows of the table, and their clients' indices point to these.
    index = models.index.clone()
    index[kept.clients] = torch.arange(len(kept.clients)) + len(models.table)
    own = Rows(torch.cat([models.table, kept.models()]), index)
    loss, accuracy = columns.pop("loss"), columns.pop("accuracy")
    served = replace(served, models=own)
    return replace(scores, loss=loss, accuracy=accuracy, metrics=columns, served=served)


def _means(replies: Replies) -> tuple[Tensor, Tensor]:
    """Mean losses and accuracies (N, C) of the clients that answered."""
    counts = replies.columns["num_examples"][:, None]
    return replies.columns["loss"] / counts, replies.columns["right"] / counts


def _untuned(test: ClientScores) -> ClientScores:
    """Return the test scores before any tuning: every client has chosen the served model."""
    size, served = len(test.labels), test.served
    adapted_from = served.adapted_from or served.models
    tuning = Tuning(
        epochs=np.zeros(size, dtype=np.int64),
        weight=np.zeros(size),
        loss=test.loss,
        accuracy=test.accuracy,
        validation_loss=np.full(size, np.nan),
        validation_accuracy=np.full(size, np.nan),
    )
    return replace(test, served=replace(served, adapted_from=adapted_from), tuning=tuning)
