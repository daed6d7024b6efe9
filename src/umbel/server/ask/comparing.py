"""Ask clients for data to compare them by: losses, gradients, features, principal vectors."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from umbel.client.work import Feature, Gradient, MeanLoss, PrincipalVectors, Work
from umbel.flow import Flow, Rows
from umbel.server.ask.context import Context
from umbel.server.ask.training import cut
from umbel.summary import in_short


@dataclass(frozen=True)
class Losses:
    """Mean losses of models, one row per client."""

    clients: Tensor  #: (N,) the clients that answered
    losses: Tensor  #: (N, K) one column per model

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


def losses(models: Tensor, ctx: Context, work: MeanLoss | None = None) -> Flow[Losses]:
    """Get the mean training loss of each of `models` (K, P) on each client: `losses` (N, K)."""
    replies = yield ctx.request(work or MeanLoss(), {"models": models})
    return Losses(replies.clients, **replies.columns)


def own_loss(theta: Rows, ctx: Context, work: MeanLoss | None = None) -> Flow[Losses]:
    """Get the mean training loss of each client's own row of theta (N, P): `losses` (N, 1)."""
    models = Rows(theta.table[:, None], theta.index)
    replies = yield ctx.request(work or MeanLoss(), models=models)
    return Losses(replies.clients, **replies.columns)


def gradients(
    theta: Rows, ctx: Context, work: Gradient, digits: int | None = None
) -> Flow[Gradients]:
    """Get each client's gradient at its row of theta (N, P), cut to `digits` decimals if given.

    Gives `gradient` (N, P) and `num_examples` (N,).
    """
    replies = yield ctx.request(cut(work, digits), theta=theta)
    return Gradients(replies.clients, **replies.columns)


def features(
    theta: Tensor, coordinates: Tensor, ctx: Context, of: Work, digits: int | None = None
) -> Flow[Features]:
    """Get some coordinates (J,) of each client's gradient or update at one theta (P,).

    `of` is the work that computes it, such as `Gradient`. Gives `feature` (N, J).
    """
    shared = {"theta": theta}
    if not torch.equal(coordinates, torch.arange(len(theta))):
        # Selecting all of many values takes as long as a step, and their positions would be sent.
        narrow = len(theta) <= torch.iinfo(torch.int32).max
        shared["coordinates"] = coordinates.int() if narrow else coordinates
    replies = yield ctx.request(Feature(cut(of, digits)), shared)
    return Features(replies.clients, **replies.columns)


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
