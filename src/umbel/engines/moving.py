"""What updates would make of models: statistics that are none, or numbers without an end.

Running statistics in what clients send are held to bounds of their own.
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
    """From which value of an update on, of this many, they are running statistics."""
    held = _held(request, layout, width)
    return width if held is None or layout is None else int((held < layout.num_weights).sum())


def negative_variances(request: Request, replies: Replies, layout: Layout | None) -> dict[int, str]:
    """Whose update would leave a running variance below 0, and of how much.

    No training does that. A mean of variances of which one is far below 0 is below 0, too, and the
    outputs of such a model are no numbers. What was below 0 already is nobody's fault here.
    """
    update = replies.columns.get(UPDATE)
    if layout is None or update is None or not len(layout.variances) or not len(update):
        return {}
    held, before = _held(request, layout, update.shape[-1]), _before(request, replies)
    if held is None or before is None:
        return {}
    places = torch.nonzero(torch.isin(held, layout.variances))[:, 0]
    was, move = before[..., places], update[..., places]
    rounding = 8 * torch.finfo(update.dtype).eps * was.abs()
    wrong = (was >= 0) & (was + move < -rounding)
    faults = {}
    for n in torch.nonzero(wrong.flatten(1).any(1))[:, 0].tolist():
        lowest = float((was + move).expand_as(wrong)[n][wrong[n]].min())
        faults[int(replies.clients[n])] = f"update: a running variance of {lowest:.3g}, below 0"
    return faults


def overflows(request: Request, replies: Replies) -> dict[int, str]:
    """Whose update would take a model in half precision beyond the numbers that this has."""
    update = replies.columns.get(UPDATE)
    if update is None or update.dtype != torch.float16 or not len(update):
        return {}
    before = _before(request, replies)
    if before is None or before.shape[-1] != update.shape[-1]:
        return {}
    beyond = torch.nonzero(~(before + update).isfinite().flatten(1).all(1))[:, 0].tolist()
    most = f"{torch.finfo(update.dtype).max:,.0f}"
    said = f"update: takes the model beyond {most}, the largest number in float16"
    return {int(replies.clients[n]): said for n in beyond}


def _held(request: Request, layout: Layout | None, width: int) -> Tensor | None:
    """Which values of theta (P,) an update of this width holds, in order; None: others."""
    if layout is None:
        return None
    if isinstance(request.work, SharedTraining):
        return parted(layout, request.work.kept)[0]
    return torch.arange(width) if width == layout.num_values else None


def _before(request: Request, replies: Replies) -> Tensor | None:
    """What updates (N, P), or (N, K, P), were made from; None where that is not known."""
    models, theta = request.shared.get("models"), request.each.get("theta")
    if theta is not None:
        place_of = {client: n for n, client in enumerate(request.clients.tolist())}
        places = [place_of[client] for client in replies.clients.tolist()]
        return theta.table[theta.index[places]]
    if models is None:
        return request.shared.get("theta")
    if "chosen" in replies.columns:
        return models[replies.columns["chosen"]]
    return models if replies.columns[UPDATE].dim() == models.dim() + 1 else None
