"""Updates that would make a model's statistics invalid, or its values infinite.

Also finds the running statistics in updates, which have separate bounds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from umbel.client.layout import Layout
from umbel.client.work import SharedTraining
from umbel.client.work.shared_training import parted
from umbel.flow import Replies, Request

UPDATE = "update"


def first_statistic(request: Request, layout: Layout | None, width: int) -> int:
    """The index of the first running statistic in an update of `width` values; `width` if none."""
    if layout is None:
        return width
    if isinstance(request.work, SharedTraining):
        return int((parted(layout, request.work.kept)[0] < layout.num_weights).sum())
    return layout.num_weights if width == layout.num_values else width


def negative_variances(request: Request, replies: Replies, layout: Layout | None) -> dict[int, str]:
    """Clients whose update would make a running variance negative, with the reason.

    Training never does so. One strongly negative variance makes the mean over clients negative,
    too, and the model then outputs NaN. A variance that was negative before does not count.
    """
    update = replies.columns.get(UPDATE)
    if layout is None or update is None or not len(layout.variances) or not len(update):
        return {}
    places = _variances(request, layout, update.shape[-1])
    was = None if places is None else _before(request, replies, places)
    if places is None or was is None:
        return {}
    move = update[..., places]
    rounding = 8 * torch.finfo(update.dtype).eps * was.abs()
    wrong = (was >= 0) & (was + move < -rounding)
    faults = {}
    for n in torch.nonzero(wrong.flatten(1).any(1))[:, 0].tolist():
        lowest = float((was + move).expand_as(wrong)[n][wrong[n]].min())
        faults[int(replies.clients[n])] = f"update: a running variance of {lowest:.3g}, below 0"
    return faults


def overflows(request: Request, replies: Replies) -> dict[int, str]:
    """Clients whose update would overflow a model in half precision, with the reason."""
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


def _variances(request: Request, layout: Layout, width: int) -> Tensor | None:
    """Where running variances are in an update of this width; None: it is of something else."""
    if isinstance(request.work, SharedTraining):
        shared = parted(layout, request.work.kept)[0]
        return torch.nonzero(torch.isin(shared, layout.variances))[:, 0]
    return layout.variances if width == layout.num_values else None


def _before(request: Request, replies: Replies, places: Tensor) -> Tensor | None:
    """These values of the models that updates (N, P), or (N, K, P), start from; None if unknown."""
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
