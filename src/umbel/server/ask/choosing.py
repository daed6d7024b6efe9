"""Ask clients to choose a model, and to work with it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from umbel.client.work import (
    ChooseByLoss,
    ChooseJointly,
    Gradient,
    JointScore,
    Judge,
    LocalTraining,
)
from umbel.flow import Flow, Rows
from umbel.reduction import Reduction
from umbel.server.ask.comparing import Gradients
from umbel.server.ask.context import Context, check_work
from umbel.server.ask.training import Summed, Trained, summed
from umbel.summary import in_short


@dataclass(frozen=True)
class TrainedBest(Trained):
    """Results of training the model that each client chose, one row per client."""

    chosen: Tensor  #: (N,) the model that the client chose and trained
    losses: Tensor  #: (N, K) training loss of every model before training

    __repr__ = in_short


@dataclass(frozen=True)
class SummedBest(Summed):
    """Results of training the model that each client chose, as sums over clusters."""

    chosen: Tensor  #: (N,) the model that the client chose and trained
    losses: Tensor  #: (N, K) training loss of every model before training

    __repr__ = in_short


@dataclass(frozen=True)
class BestGradients(Gradients):
    """Gradients of the model that each client chose, one row per client."""

    chosen: Tensor  #: (N,) the model of the client's gradient
    losses: Tensor  #: (N, K) training losses, one column per model

    __repr__ = in_short


@dataclass(frozen=True)
class TrainedJointly(Trained):
    """Results of training the model that each client chose by gradient and loss."""

    chosen: Tensor  #: (N,) the model that the client chose
    scores: Tensor  #: (N, K) score of every model, the highest is best

    __repr__ = in_short


@dataclass(frozen=True)
class Scores:
    """Scores of all models at each client, one row per client."""

    clients: Tensor  #: (N,) the clients that answered
    scores: Tensor  #: (N, K) one column per model, the highest score is best

    __repr__ = in_short


def train_best(
    models: Tensor, ctx: Context, local: LocalTraining, judge: Judge = "all"
) -> Flow[TrainedBest]:
    """Have each client train the one of `models` (K, P) that has the lowest loss on its data.

    Gives `update` (N, P), `num_examples` (N,), `chosen` (N,), and `losses` (N, K) before training.
    """
    check_work("local", local, LocalTraining)
    work = ChooseByLoss(local.at_round(ctx.round), judge)
    replies = yield ctx.request(work, {"models": models})
    return TrainedBest(replies.clients, **replies.columns)


def train_best_summed(
    models: Tensor,
    ctx: Context,
    local: LocalTraining,
    reduction: Reduction,
    judge: Judge = "all",
) -> Flow[SummedBest]:
    """Train as `train_best` does, and return sums over the clients that chose the same model.

    `reduction` is `Averaging.reduction(K)`. Gives `sums`, `chosen` (N,) and `losses` (N, K).
    """
    check_work("local", local, LocalTraining)
    work = ChooseByLoss(local.at_round(ctx.round), judge)
    replies = yield ctx.request(work, {"models": models}, reduction)
    sums, rest = summed(reduction, replies)
    return SummedBest(replies.clients, sums, rest["chosen"], rest["losses"])


def best_gradients(
    models: Tensor, ctx: Context, work: Gradient, judge: Judge = "all"
) -> Flow[BestGradients]:
    """Get each client's gradient at the one of `models` (K, P) that has the lowest loss.

    Gives `gradient` (N, P), `num_examples` (N,), `chosen` (N,) and `losses` (N, K).
    """
    check_work("work", work, Gradient)
    replies = yield ctx.request(ChooseByLoss(work, judge), {"models": models})
    return BestGradients(replies.clients, **replies.columns)


def train_jointly(
    models: Tensor, moves: Tensor, given: Rows, ctx: Context, score: JointScore
) -> Flow[TrainedJointly]:
    """Have each client train the one of `models` (K, P) with the best score, or the one given (N,).

    Gives `update` (N, P), `num_examples` (N,), `chosen` (N,) and `scores` (N, K). This is the round
    of `Joint`: `moves` (K, P) are the models' last changes, and with -1 in `given` the client
    chooses.
    """
    check_work("score", score, JointScore)
    shared = {"models": models, "moves": moves}
    replies = yield ctx.request(ChooseJointly(score), shared, given=given)
    return TrainedJointly(replies.clients, **replies.columns)


def joint_scores(models: Tensor, moves: Tensor, ctx: Context, score: JointScore) -> Flow[Scores]:
    """Get each client's score of each of `models` (K, P): `scores` (N, K), the highest is best."""
    check_work("score", score, JointScore)
    replies = yield ctx.request(score, {"models": models, "moves": moves})
    return Scores(replies.clients, **replies.columns)
