"""What algorithms can ask of clients: each verb is a typed flow of one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.layout import Layout
from umbel.client.work import (
    ChooseByLoss,
    ChooseJointly,
    Evaluation,
    Feature,
    Gradient,
    JointScore,
    Judge,
    LocalTraining,
    MeanLoss,
    MetaTraining,
    MixtureEvaluation,
    MixtureTraining,
    MixtureWeights,
    MoreauTraining,
    PrincipalVectors,
    Quantised,
    TrainAndGradient,
    Work,
)
from umbel.flow import Flow, Replies, Request, Rows
from umbel.reduction import Reduction, Sums
from umbel.seeds import Stream, client_seeds, seed_of
from umbel.server.answers import (
    BestGradients,
    Evaluated,
    Features,
    Gradients,
    Losses,
    Memories,
    Principal,
    Scores,
    Summed,
    SummedBest,
    Trained,
    TrainedBest,
    TrainedJointly,
    TrainedWithGradient,
    TrainedWithMemory,
)
from umbel.summary import in_short


@dataclass(frozen=True)
class Context:
    """What a round may know besides its state."""

    round: int  # counted from 0
    num_rounds: int
    cohort: Tensor  # (N,) the clients asked to take part, in increasing order
    num_clients: int  # M
    seed: int
    layout: Layout  # what the P values of a model are
    input_shape: tuple[int, ...] = ()  # of one example
    num_outputs: int = 0  # of a model: the number of classes
    optional: bool = False  # whether the round can do without any reply of the cohort

    __repr__ = in_short

    @property
    def everyone(self) -> Context:
        """The same round with all clients asked."""
        return self.asking(torch.arange(self.num_clients))

    def asking(self, clients: Tensor, optional: bool = False) -> Context:
        """The same round with these clients asked."""
        return replace(self, cohort=clients.sort().values, optional=optional)

    @property
    def clustering_seed(self) -> int:
        """For the random starts of a clustering in this round."""
        return seed_of(self.seed, Stream.CLUSTERING, self.round)

    def request(
        self,
        work: Work,
        shared: dict[str, Tensor] | None = None,
        reduction: Reduction | None = None,
        **each: Rows,
    ) -> Request:
        """Ask the cohort, with the seeds of this round.

        Raises `UsageError` where what each client gets is not `Rows`.
        """
        for name, rows in each.items():
            expected = "Rows(table, index), which say the row of each client"
            check(isinstance(rows, Rows), name, type(rows).__name__, expected)
        seeds = client_seeds(self.seed, Stream.CLIENT, self.round, self.cohort.numpy())
        return Request(work, self.cohort, seeds, shared or {}, each, self.optional, reduction)


def train(
    theta: Rows, ctx: Context, local: LocalTraining | MetaTraining, digits: int | None = None
) -> Flow[Trained]:
    """Each client of the cohort trains its row of theta (N, P); sends so many decimals, or all."""
    replies = yield ctx.request(_cut(local.at_round(ctx.round), digits), theta=theta)
    return Trained(replies.clients, **replies.columns)


def train_with_gradient(
    theta: Rows, ctx: Context, local: LocalTraining
) -> Flow[TrainedWithGradient]:
    """As `train`; and each client sends the gradient of all its data at theta, too."""
    replies = yield ctx.request(TrainAndGradient(local.at_round(ctx.round)), theta=theta)
    return TrainedWithGradient(replies.clients, **replies.columns)


def train_summed(
    theta: Rows, ctx: Context, local: LocalTraining | MetaTraining, reduction: Reduction
) -> Flow[Summed]:
    """As `train`, where only the sums over clusters matter: no row a client need be kept."""
    request = ctx.request(local.at_round(ctx.round), reduction=reduction, theta=theta)
    replies = yield request
    return Summed(replies.clients, _summed(reduction, replies)[0])


def train_best(
    models: Tensor, ctx: Context, local: LocalTraining, judge: Judge = "all"
) -> Flow[TrainedBest]:
    """Each client trains the one of `models` (K, P) that has the lowest loss on its data."""
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
    """As `train_best`, where only the sums over those who chose alike matter."""
    work = ChooseByLoss(local.at_round(ctx.round), judge)
    replies = yield ctx.request(work, {"models": models}, reduction)
    sums, rest = _summed(reduction, replies)
    return SummedBest(replies.clients, sums, rest["chosen"], rest["losses"])


def train_personal(theta: Rows, ctx: Context, work: MoreauTraining) -> Flow[TrainedWithMemory]:
    """As `train`; the memory (N, P) of each client is its personal model."""
    replies = yield ctx.request(work.at_round(ctx.round), theta=theta)
    return TrainedWithMemory(replies.clients, **replies.columns)


def train_mixture(
    models: Tensor, memory: Rows, ctx: Context, local: LocalTraining
) -> Flow[TrainedWithMemory]:
    """Each client trains all `models` (K, P), each on its share of the examples: update (N, K, P).

    Its memory (N, K) is the weight of each model in the client's mixture.
    """
    work = MixtureTraining(local.at_round(ctx.round))
    replies = yield ctx.request(work, {"models": models}, memory=memory)
    return TrainedWithMemory(replies.clients, **replies.columns)


def mixture_weights(models: Tensor, memory: Rows, ctx: Context) -> Flow[Memories]:
    """The weight (N, K) of each of `models` (K, P) in each client's mixture, brought up to date."""
    replies = yield ctx.request(MixtureWeights(), {"models": models}, memory=memory)
    return Memories(replies.clients, **replies.columns)


def train_jointly(
    models: Tensor, moves: Tensor, given: Rows, ctx: Context, score: JointScore
) -> Flow[TrainedJointly]:
    """Each client trains the one of `models` (K, P) with the best score, or the one given (N,)."""
    shared = {"models": models, "moves": moves}
    replies = yield ctx.request(ChooseJointly(score), shared, given=given)
    return TrainedJointly(replies.clients, **replies.columns)


def joint_scores(models: Tensor, moves: Tensor, ctx: Context, score: JointScore) -> Flow[Scores]:
    """Each client's score of each of `models` (K, P)."""
    replies = yield ctx.request(score, {"models": models, "moves": moves})
    return Scores(replies.clients, **replies.columns)


def features(
    theta: Tensor, coordinates: Tensor, ctx: Context, of: Work, digits: int | None = None
) -> Flow[Features]:
    """Some coordinates (J,) of each client's gradient or update at one theta (P,)."""
    work = Feature(_cut(of, digits))
    replies = yield ctx.request(work, {"theta": theta, "coordinates": coordinates})
    return Features(replies.clients, **replies.columns)


def gradients(
    theta: Rows, ctx: Context, work: Gradient, digits: int | None = None
) -> Flow[Gradients]:
    """Each client's gradient at its row of theta (N, P), with so many decimals, or all."""
    replies = yield ctx.request(_cut(work, digits), theta=theta)
    return Gradients(replies.clients, **replies.columns)


def best_gradients(
    models: Tensor, ctx: Context, work: Gradient, judge: Judge = "all"
) -> Flow[BestGradients]:
    """Each client's gradient at the one of `models` (K, P) that has the lowest loss."""
    replies = yield ctx.request(ChooseByLoss(work, judge), {"models": models})
    return BestGradients(replies.clients, **replies.columns)


def losses(models: Tensor, ctx: Context, work: MeanLoss | None = None) -> Flow[Losses]:
    """Mean training loss of each of `models` (K, P) on each client."""
    replies = yield ctx.request(work or MeanLoss(), {"models": models})
    return Losses(replies.clients, **replies.columns)


def own_loss(theta: Rows, ctx: Context, work: MeanLoss | None = None) -> Flow[Losses]:
    """Mean training loss of each client's row of theta (N, P), as the only column."""
    models = Rows(theta.table[:, None], theta.index)
    replies = yield ctx.request(work or MeanLoss(), models=models)
    return Losses(replies.clients, **replies.columns)


def principal_vectors(ctx: Context, num_vectors: int, per_class: bool = False) -> Flow[Principal]:
    """The leading principal vectors of each client's training inputs, of all or of each class."""
    work = PrincipalVectors(
        num_vectors, prod(ctx.input_shape), ctx.num_outputs if per_class else None
    )
    replies = yield ctx.request(work)
    return Principal(replies.clients, **replies.columns)


def evaluate(theta: Rows, ctx: Context) -> Flow[Evaluated]:
    """Mean test loss and accuracy of each client's row of theta (N, P)."""
    replies = yield ctx.request(Evaluation(), theta=theta)
    return _evaluated(replies)


def evaluate_mixture(models: Tensor, weights: Rows, ctx: Context) -> Flow[Evaluated]:
    """As `evaluate`, of the mixture of `models` (K, P) with each client's row of weights (N, K)."""
    replies = yield ctx.request(MixtureEvaluation(), {"models": models}, weights=weights)
    return _evaluated(replies)


def _summed(reduction: Reduction, replies: Replies) -> tuple[Sums, Mapping[str, Tensor]]:
    """The sums, whether or not somebody made them on the way, and the other columns."""
    if replies.sums is not None:
        return replies.sums, replies.columns
    return reduction.of(replies.clients, replies.columns)


def _evaluated(replies: Replies) -> Evaluated:
    count = replies.columns["num_examples"]
    loss, right = replies.columns["loss"] / count, replies.columns["right"] / count
    return Evaluated(replies.clients, loss, right, count)


def _cut(work: Work, digits: int | None) -> Work:
    return work if digits is None else Quantised(work, digits)
