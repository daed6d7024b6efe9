"""Ask clients for data to compare them by: losses, gradients, features, principal vectors."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.work import Feature, Gradient, MeanLoss, ModelScores, PrincipalVectors, Work
from umbel.flow import Flow, Rows, check_numbers, check_tensor
from umbel.server.ask.context import Context, check_rows, check_work
from umbel.server.ask.training import cut
from umbel.summary import in_short


@dataclass(frozen=True)
class Losses:
    """Mean losses of models, one row per client."""

    clients: Tensor  #: (N,) the clients that answered
    losses: Tensor  #: (N, K) one column per model

    __repr__ = in_short


@dataclass(frozen=True)
class Judged:
    """Scores of models, higher for better ones, one row per client."""

    clients: Tensor  #: (N,) the clients that answered
    scores: Tensor  #: (N, K) one column per model
    num_examples: Tensor  #: (N,) number of examples that they are of

    __repr__ = in_short


@dataclass(frozen=True)
class Gradients:
    """Gradients at a model, one row per client."""

    clients: Tensor  #: (N,) the clients that answered
    gradient: Tensor  #: (N, P) gradients of the mean loss
    num_examples: Tensor  #: (N,) number of training examples

    __repr__ = in_short


@dataclass(frozen=True)
class Features:
    """Some coordinates of gradients or updates, one row per client."""

    clients: Tensor  #: (N,) the clients that answered
    feature: Tensor  #: (N, J) values, in the order of the coordinates

    __repr__ = in_short


@dataclass(frozen=True)
class Principal:
    """Principal vectors of clients' inputs, one row per client."""

    clients: Tensor  #: (N,) the clients that answered
    vectors: Tensor  #: (N, D, Q) double; columns have length 1, missing ones are zero

    __repr__ = in_short


def model_scores(models: Rows | Tensor, ctx: Context, work: ModelScores) -> Flow[Judged]:
    """Get the score of each of `models` (K, P) on each client's training examples.

    With `Rows` of models (N, K, P) each client scores its own. Gives `scores` (N, K), NaN where a
    client has nothing that counts, and `num_examples` (N,).
    """
    check_work("work", work, ModelScores)
    if isinstance(models, Rows):
        replies = yield ctx.request(work, models=models)
    else:
        replies = yield ctx.request(work, {"models": models})
    return Judged(replies.clients, **replies.columns)


def losses(models: Tensor, ctx: Context, work: MeanLoss | None = None) -> Flow[Losses]:
    """Get the mean training loss of each of `models` (K, P) on each client: `losses` (N, K)."""
    work = MeanLoss() if work is None else work
    check_work("work", work, MeanLoss)
    replies = yield ctx.request(work, {"models": models})
    return Losses(replies.clients, **replies.columns)


def own_loss(theta: Rows, ctx: Context, work: MeanLoss | None = None) -> Flow[Losses]:
    """Get the mean training loss of each client's own row of theta (N, P): `losses` (N, 1)."""
    work = MeanLoss() if work is None else work
    check_work("work", work, MeanLoss)
    check_rows("theta", theta)
    models = Rows(theta.table[:, None], theta.index)
    replies = yield ctx.request(work, models=models)
    return Losses(replies.clients, **replies.columns)


def gradients(
    theta: Rows, ctx: Context, work: Gradient, digits: int | None = None
) -> Flow[Gradients]:
    """Get each client's gradient at its row of theta (N, P), cut to `digits` decimals if given.

    Gives `gradient` (N, P) and `num_examples` (N,).
    """
    check_work("work", work, Gradient)
    replies = yield ctx.request(cut(work, digits), theta=theta)
    return Gradients(replies.clients, **replies.columns)


def features(
    theta: Tensor, coordinates: Tensor, ctx: Context, of: Work, digits: int | None = None
) -> Flow[Features]:
    """Get some coordinates (J,) of each client's gradient or update at one theta (P,).

    `of` is the work that computes it, such as `Gradient`. Gives `feature` (N, J). Raises
    `UsageError` unless theta is one model, and coordinates are whole numbers in 0 to P - 1.
    """
    check_work("of", of, Work)
    _check_places(theta, coordinates)
    shared = {"theta": theta}
    if not torch.equal(coordinates, torch.arange(len(theta))):
        # Selecting all of many values takes as long as a step, and their positions would be sent.
        narrow = len(theta) <= torch.iinfo(torch.int32).max
        shared["coordinates"] = coordinates.int() if narrow else coordinates
    replies = yield ctx.request(Feature(cut(of, digits)), shared)
    return Features(replies.clients, **replies.columns)


def _check_places(theta: Tensor, coordinates: Tensor) -> None:
    """Raise `UsageError` unless these are one model (P,), and numbers (J,) of its values."""
    check_tensor(theta, "theta", "a tensor (P,), one model that all clients get")
    expected = "(P,), one model that all clients get, as in state.models[0]"
    check(theta.dim() == 1, "theta: shape", tuple(theta.shape), expected)
    check_tensor(coordinates, "coordinates", "a tensor (J,)")
    expected = "(J,), the numbers of values"
    check(coordinates.dim() == 1, "coordinates: shape", tuple(coordinates.shape), expected)
    whole = coordinates.long() if coordinates.dtype == torch.int32 else coordinates
    check_numbers(whole, "coordinates", len(theta), "a model's values")


def principal_vectors(ctx: Context, num_vectors: int, per_class: bool = False) -> Flow[Principal]:
    """Get the leading left singular vectors of each client's training inputs, or of each class.

    Gives `vectors` (N, D, Q) in double precision, for inputs of D values; columns have length 1,
    missing ones are zero. Q is the smaller of `num_vectors` and D, with `per_class` times the
    number of classes.
    """
    work = PrincipalVectors(
        num_vectors, prod(ctx.input_shape), ctx.num_outputs if per_class else None
    )
    replies = yield ctx.request(work)
    return Principal(replies.clients, **replies.columns)
