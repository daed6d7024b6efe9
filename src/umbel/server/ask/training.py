"""Ask clients to train the models they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from umbel.client.work import (
    Gradient,
    LocalTraining,
    MetaTraining,
    MoreauTraining,
    Quantised,
    TrainAndGradient,
    Work,
)
from umbel.flow import Flow, Replies, Rows
from umbel.reduction import Reduction, Sums, Updates
from umbel.server.ask.context import Context, check_work
from umbel.summary import in_short


@dataclass(frozen=True)
class Trained:
    """Results of local training, one row per client."""

    clients: Tensor  #: (N,) the clients that answered
    update: Tensor  #: (N, P) trained minus received model
    num_examples: Tensor  #: (N,) number of training examples

    __repr__ = in_short


@dataclass(frozen=True)
class TrainedWithGradient(Trained):
    """Results of local training, and the gradient before it, one row per client."""

    gradient: Tensor  #: (N, P) gradient at the received model

    __repr__ = in_short


@dataclass(frozen=True)
class TrainedWithMemory(Trained):
    """Results of local training, and the values that clients remember, one row per client."""

    memory: Tensor  #: (N, ...) the values that each client remembers

    __repr__ = in_short


@dataclass(frozen=True)
class Summed:
    """Results of local training as sums over clusters."""

    clients: Tensor  #: (N,) the clients that answered
    sums: Sums | Updates  #: sums of the updates in each cluster, or rows if a rule needs them

    __repr__ = in_short


def train(
    theta: Rows, ctx: Context, local: LocalTraining | MetaTraining, digits: int | None = None
) -> Flow[Trained]:
    """Have each client of the cohort train its row of theta (N, P).

    Gives `update` (N, P), trained minus received, and `num_examples` (N,). With `digits`, clients
    send values with that many decimal places.
    """
    check_work("local", local, LocalTraining, MetaTraining)
    replies = yield ctx.request(cut(local.at_round(ctx.round), digits), theta=theta)
    return Trained(replies.clients, **replies.columns)


def train_with_gradient(
    theta: Rows, ctx: Context, local: LocalTraining, gradient: Gradient | None = None
) -> Flow[TrainedWithGradient]:
    """Train as `train` does; each client also sends its `gradient` (N, P) at theta.

    It is of all the client's training data, or of a mini-batch, as `gradient` says.
    """
    check_work("local", local, LocalTraining)
    gradient = Gradient() if gradient is None else gradient
    check_work("gradient", gradient, Gradient)
    work = TrainAndGradient(local.at_round(ctx.round), gradient)
    replies = yield ctx.request(work, theta=theta)
    return TrainedWithGradient(replies.clients, **replies.columns)


def train_summed(
    theta: Rows, ctx: Context, local: LocalTraining | MetaTraining, reduction: Reduction
) -> Flow[Summed]:
    """Train as `train` does, and return sums over clusters instead of a row for each client.

    `reduction` is `Averaging.reduction(K, labels)`. Gives `sums`, for `Averaging.step_of`.
    """
    check_work("local", local, LocalTraining, MetaTraining)
    request = ctx.request(local.at_round(ctx.round), reduction=reduction, theta=theta)
    replies = yield request
    return Summed(replies.clients, summed(reduction, replies)[0])


def train_personal(theta: Rows, ctx: Context, work: MoreauTraining) -> Flow[TrainedWithMemory]:
    """Train as `train` does; `memory` (N, P) of each client is its personal model."""
    check_work("work", work, MoreauTraining)
    replies = yield ctx.request(work.at_round(ctx.round), theta=theta)
    return TrainedWithMemory(replies.clients, **replies.columns)


def summed(reduction: Reduction, replies: Replies) -> tuple[Sums | Updates, Mapping[str, Tensor]]:
    """Return the sums and the other columns of replies.

    An engine that can't sum while clients work returns rows, which are summed here.
    """
    if replies.sums is not None:
        return replies.sums, replies.columns
    if reduction.rows:
        return reduction.updates(replies.clients, replies.columns), replies.columns
    return reduction.of(replies.clients, replies.columns)


def cut(work: Work, digits: int | None) -> Work:
    """The work, with replies cut to this many decimal places if a number is given."""
    return work if digits is None else Quantised(work, digits)
