"""Replies that would make a model's statistics invalid, or its values infinite.

Also finds the running statistics in updates, which have separate bounds.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from umbel.client.layout import Layout
from umbel.client.routing import Routing
from umbel.client.work import (
    ChooseByLoss,
    Gradient,
    Quantised,
    Routed,
    SharedTraining,
    TrainAndGradient,
    Work,
)
from umbel.client.work.shared_training import parted
from umbel.flow import Replies, Request

UPDATE, GRADIENT = "update", "gradient"


def first_statistic(request: Request, layout: Layout | None, width: int) -> int:
    """The index of the first buffer in a step of `width` values; `width` if none."""
    known = None if layout is None else _buffers(request, layout, width)
    return width if known is None else known[0]


def first_kept_statistic(request: Request, layout: Layout | None, width: int) -> int:
    """The index of the first buffer in a row of clients' memory; `width` if none."""
    if layout is None:
        return width
    if isinstance(request.work, SharedTraining):
        return int((parted(layout, request.work.kept)[1] < layout.num_weights).sum())
    return layout.num_weights if width >= layout.num_values else width


def floors(request: Request, layout: Layout, width: int, least: float) -> Tensor:
    """Return (S,) float64: the magnitude that each buffer's step may always have.

    `least` holds for means; a variance is a square of such numbers, so its floor is a square, too.
    """
    known = _buffers(request, layout, width)
    assert known is not None
    first, variances = known
    allowed = torch.full((width - first,), least, dtype=torch.double)
    allowed[variances - first] = least * max(least, 1.0)
    return allowed


def moved_by_gradients(request: Request, replies: Replies, layout: Layout | None) -> dict[int, str]:
    """Return the clients whose gradient would change a buffer, with reasons.

    The gradient of a buffer, such as a running variance, is 0 in all works of umbel. Others would
    change the model's statistics, and could make a variance negative.
    """
    gradient = replies.columns.get(GRADIENT)
    if gradient is None or not len(gradient) or not _sends_gradients(request.work):
        return {}
    beyond = gradient[:, first_statistic(request, layout, gradient.shape[-1]) :]
    faults = {}
    for n in torch.nonzero((beyond != 0).flatten(1).any(1))[:, 0].tolist():
        value = float(beyond[n][beyond[n] != 0][0])
        faults[int(replies.clients[n])] = f"gradient: {value:.3g} for a buffer, whose gradient is 0"
    return faults


def negative_variances(request: Request, replies: Replies, layout: Layout | None) -> dict[int, str]:
    """Return the clients that would make a running variance negative, with reasons.

    Training never does so. One strongly negative variance makes the mean over clients negative,
    too, and the model then outputs NaN. A variance that was negative before does not count.
    """
    update = replies.columns.get(UPDATE)
    if layout is None or update is None or not len(layout.variances) or not len(update):
        return {}
    known = _buffers(request, layout, update.shape[-1])
    was = None if known is None else _before(request, replies, known[1])
    if known is None or was is None:
        return {}
    places = known[1]
    move = update[..., places]
    # A variance near 0 may end a little below it by rounding.
    rounding = 8 * torch.finfo(update.dtype).eps * was.abs()
    wrong = (was >= 0) & (was + move < -rounding)
    faults = {}
    for n in torch.nonzero(wrong.flatten(1).any(1))[:, 0].tolist():
        lowest = float((was + move).expand_as(wrong)[n][wrong[n]].min())
        faults[int(replies.clients[n])] = f"update: a running variance of {lowest:.3g}, below 0"
    return faults


def overflows(request: Request, replies: Replies) -> dict[int, str]:
    """Return the clients that would overflow a model in half precision, with reasons."""
    update = replies.columns.get(UPDATE)
    if update is None or update.dtype != torch.float16 or not len(update):
        return {}
    before = _before(request, replies, torch.arange(update.shape[-1]))
    if before is None:
        return {}
    beyond = torch.nonzero(~(before + update).isfinite().flatten(1).all(1))[:, 0].tolist()
    most = f"{torch.finfo(update.dtype).max:,.0f}"
    said = f"update: takes the model beyond {most}, the largest number in float16"
    return {int(replies.clients[n]): said for n in beyond}


def _sends_gradients(work: Work) -> bool:
    """Return True if the column `gradient` has gradients as umbel's works send them."""
    while isinstance(work, Quantised | ChooseByLoss | Routed | SharedTraining):
        assert work.inner is not None
        work = work.inner
    return type(work) in (Gradient, TrainAndGradient)  # your own work may send other values


def _buffers(request: Request, layout: Layout, width: int) -> tuple[int, Tensor] | None:
    """Return the first buffer and the running variances (V,) of a step of this width.

    None if the step has another form than a model.
    """
    if isinstance(request.work, SharedTraining):
        shared = parted(layout, request.work.kept)[0]
        variances = torch.nonzero(torch.isin(shared, layout.variances))[:, 0]
        return int((shared < layout.num_weights).sum()), variances
    for each in _layouts(request.work, layout):
        if width == each.num_values:
            return each.num_weights, each.variances
    return None


def _layouts(work: Work, layout: Layout) -> Iterator[Layout]:
    """The layouts that a sent model may have, of which a step has the form."""
    if isinstance(work, Routed):
        routing = Routing(layout, work.num_experts)
        yield from (routing.own, routing.layout)
    else:
        yield layout


def _before(request: Request, replies: Replies, places: Tensor) -> Tensor | None:
    """Return these values of the models that updates (N, P), or (N, K, P), start from, if known."""
    models, theta = request.shared.get("models"), request.each.get("theta")
    if theta is not None:
        place_of = {client: n for n, client in enumerate(request.clients.tolist())}
        of_each = [place_of[client] for client in replies.clients.tolist()]
        return theta.table[..., places][theta.index[of_each]]
    if models is None:
        common = request.shared.get("theta")
        return None if common is None else common[..., places]
    if "chosen" in replies.columns:
        return models[..., places][replies.columns["chosen"]]
    several = replies.columns[UPDATE].dim() == models.dim() + 1
    return models[..., places] if several else None
