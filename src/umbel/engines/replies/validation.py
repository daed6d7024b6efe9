"""Checks of every reply, so that no client can crash the server or spoil a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

import torch
from torch import Tensor

from umbel.checks import UsageError, check, check_least
from umbel.client.batches import Shard
from umbel.client.layout import Layout
from umbel.client.net import Net
from umbel.client.work import DURING, MEMORY, Promise, Work
from umbel.client.work.base import promised
from umbel.client.work.loss_bounds import MAX_LOSS
from umbel.client.work.schemes import CONTROL
from umbel.engines.replies.invalid_models import first_kept_statistic, first_statistic
from umbel.flow import Replies, Request
from umbel.settings import Settings

OF_MODELS = ("theta", "models", "moves")
"""Names of sent tensors whose last dimension is that of a model, and whose type is the net's."""


OF_LOSSES = ("loss", "losses")
"""Columns of replies that hold losses, of one model or of several."""


@dataclass(frozen=True)
class Limits(Settings):
    """Limits on clients' replies; replies beyond them are not used, and the record says why."""

    #: largest magnitude of any number that a client sends, except losses; of running statistics
    #: and gradients, whose scale is that of the data, largest multiple of what most clients send
    max_value: float = 1e4
    max_examples: int = 10**9  #: largest number of examples a client may claim to have
    #: largest share of the weights in an average that one client may have; a client that claims
    #: more examples than that counts with fewer
    max_share: float = 0.9
    #: largest norm of an update or gradient, as a multiple of the median norm of those that are not
    #: zero; longer ones are shortened; None: 4 over Flower, and no bound in one process
    max_norm_ratio: float | None = None
    #: suspicion above which a client's replies are set aside, such as 3; None: nobody is watched
    quarantine: float | None = None
    quorum: float = 0.5  #: share of the asked clients that must give a usable reply, in [0, 1]
    #: smallest number of clients of a cluster whose model is released: models of smaller ones are
    #: not in the folder `models`, and can't be exported
    min_release: int = 1

    def __post_init__(self) -> None:
        check(self.max_value > 0, "max_value", self.max_value, "more than 0")
        check_least(self, 1, "max_examples", "min_release")
        check(0 < self.max_share <= 1, "max_share", self.max_share, "in (0, 1]")
        check_least(self, 1, "max_norm_ratio", "quarantine")
        check(0 <= self.quorum <= 1, "quorum", self.quorum, "in [0, 1]")

    @property
    def unbounded(self) -> Limits:
        """The limits without bounds on a client's influence on averages."""
        return replace(self, max_share=1.0, max_norm_ratio=None)


def promises(request: Request) -> dict[str, Promise]:
    """Return the promise for each column of the replies. Raises `UsageError` for a bad `per`."""
    found = promised(request.work, request.shapes)
    for name, promise in found.items():
        expected = f"one of the columns that are promised: {', '.join(found)}"
        check(promise.per is None or promise.per in found, f"{name}: per", promise.per, expected)
    return found


def reply_of(work: Work, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Do a client's work. Raises `UsageError` unless the reply is a tensor for each column."""
    reply: Any = work(net, shard, sent)
    kind = type(work).__name__
    if not isinstance(reply, dict):
        raise UsageError(f"{kind}: {type(reply).__name__} instead of a dict of tensors")
    for name, value in reply.items():
        if not isinstance(value, Tensor):
            raise UsageError(f"{kind}: {name}: {type(value).__name__} instead of a tensor")
    return reply


def assemble(
    request: Request, answers: Iterable[tuple[Sequence[int], Mapping[str, Tensor]]]
) -> Replies:
    """Join answers, each with a row of some clients in every column, by client number.

    No client may be in two rows. Answers without the promised form are refused.
    """
    expected, of_models = promises(request), models_type(request)
    refused: dict[int, str] = {}
    parts: list[tuple[Sequence[int], Mapping[str, Tensor]]] = []
    for clients, rows in answers:
        fault = wrong_form(rows, expected)
        if fault is None:
            parts.append((clients, rows))
        else:
            refused |= dict.fromkeys(clients, fault)
    numbers = torch.tensor([client for clients, _ in parts for client in clients]).long()
    order = numbers.argsort()
    # Rows are copied once, straight to their places: (N, P) values are large.
    places = torch.split(order.argsort(), [len(clients) for clients, _ in parts])
    columns = {}
    for name, promise in expected.items():
        column = torch.empty(len(order), *promise.shape, dtype=promise.dtype or of_models)
        for at, (_, rows) in zip(places, parts, strict=True):
            column[at] = rows[name].to(column.dtype)
        columns[name] = column
    return Replies(numbers[order], columns, refused)


def models_type(request: Request) -> torch.dtype:
    """The floating-point type of the models that a request is about.

    It is that of the first tensor sent under a name in `OF_MODELS`; without one, of the first with
    floating-point values.
    """
    each = {name: rows.table for name, rows in request.each.items() if name != DURING}
    sent = {**request.shared, **each}
    models = [sent[name] for name in OF_MODELS if name in sent]
    tensors = [*models, *sent.values()]
    return next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)


def wrong_form(rows: Mapping[str, Tensor], expected: Mapping[str, Promise]) -> str | None:
    """Return the fault in the names, shapes or kinds of clients' rows; None if none."""
    if set(rows) != set(expected):
        return f"columns {sorted(map(str, rows))} instead of {sorted(expected)}"
    for name, promise in expected.items():
        value = rows[name]
        if value.shape[1:] != promise.shape:
            return f"{name}: shape {tuple(value.shape[1:])} instead of {promise.shape}"
        wanted = promise.dtype or torch.float32
        if value.is_floating_point() != wanted.is_floating_point or value.is_complex():
            return f"{name}: {value.dtype} instead of {wanted}"
    return None


def rounding(dtype: torch.dtype) -> float:
    """Return the largest difference of a sum of numbers of this type from its promised value."""
    return max(1e-3, torch.finfo(dtype).eps) if dtype.is_floating_point else 0.0


DIVERGED = ": training diverged there, or the reply is faulty"
"""End of the reason if a client's numbers are not finite or far too large."""

TOO_LARGE = ": it stands for losses of all models that are larger, or no numbers"
"""End of the reason if no model fits a client's examples at all, as if its units were others."""


def bad_values(
    request: Request, replies: Replies, limits: Limits, layout: Layout | None = None
) -> dict[int, str]:
    """Return the clients that sent an unusable number, with the reasons.

    Numbers whose scale is that of the data need only be finite: see `umbel.engines.replies.bounds`.
    """
    faults: dict[int, str] = {}
    for name, promise in promises(request).items():
        column = replies.columns[name]
        floating = promise.dtype is None or promise.dtype.is_floating_point
        widest = limits.max_value if floating else limits.max_examples
        low = -widest if promise.low is None else promise.low
        high = widest if promise.high is None else promise.high
        if not column.numel():
            continue
        # (N, V): a client is refused for any of its numbers.
        values = column.reshape(len(column), -1)
        if promise.per is not None:
            # Sums of many terms may be larger than the sum of their bounds by rounding.
            counts = replies.columns[promise.per].double().clamp(min=0)[:, None] * (1 + 1e-9)
            values = values.where(values == 0, values / counts)
        largest, smallest = values.amax(1), values.amin(1)  # NaN where any value is
        finite = largest.isfinite() & smallest.isfinite()  # a bound may be infinite in this type
        if promise.low is None and promise.high is None and column.dim() > 1:
            own = column[..., : first_scaled(name, request, layout, column.shape[-1], limits)]
            if own.shape != column.shape:
                own = own.reshape(len(own), -1) if own.numel() else torch.zeros_like(values[:, :1])
                largest = own.amax(1).where(finite, largest)
                smallest = own.amin(1).where(finite, smallest)
        usable = (largest <= high) & (smallest >= low) & finite
        if promise.may_be_nan:
            usable |= values.isnan().all(1)
        for n in torch.nonzero(~usable)[:, 0].tolist():
            # The value outside the range, for the message: the smallest, or else the largest or
            # NaN.
            below = largest[n] <= high and largest[n].isfinite()
            value = float(smallest[n] if below else largest[n])
            fault = f"{name}: {value:.3g} is not within {low:.3g} to {high:.3g}"
            if promise.low is None and column.is_floating_point():
                fault += DIVERGED
            elif promise.high == MAX_LOSS and promise.per is None and isnan(value):
                fault += TOO_LARGE
            faults.setdefault(int(replies.clients[n]), fault)
        if promise.total is not None:
            sums = values.double().sum(1)
            off = (sums - promise.total).abs() > rounding(values.dtype)
            for n in torch.nonzero(off)[:, 0].tolist():
                fault = f"{name}: sums to {float(sums[n]):.3g} instead of {promise.total:g}"
                faults.setdefault(int(replies.clients[n]), fault)
    return faults


def first_scaled(
    name: str, request: Request, layout: Layout | None, width: int, limits: Limits
) -> int:
    """Return the index in a row of this column of the first number on the scale of the data.

    Such numbers are running statistics, and gradients as long as the weights are within their
    limit: if weights explode, gradients do, too.
    """
    if name == MEMORY:
        return first_kept_statistic(request, layout, width)
    if name in ("gradient", "feature", CONTROL):
        return width if _largest_weight(request, layout) > limits.max_value else 0
    return first_statistic(request, layout, width) if name == "update" else width


def _largest_weight(request: Request, layout: Layout | None) -> float:
    """The largest magnitude of a trained weight in the models that a request sends."""
    sent = {**request.shared, **{name: rows.table for name, rows in request.each.items()}}
    models = [sent[name] for name in OF_MODELS if name in sent and sent[name].numel()]
    cut = None if layout is None else layout.num_weights
    return max((float(one[..., :cut].abs().max()) for one in models), default=0.0)


def false_losses(request: Request, replies: Replies) -> dict[int, str]:
    """Return the clients with mean losses below 0 by more than rounding, with the reasons."""
    faults: dict[int, str] = {}
    for name, promise in promises(request).items():
        column = replies.columns[name]
        # Your own work may use this name with other bounds, and another meaning.
        if name not in OF_LOSSES or promise.high != MAX_LOSS or not column.numel():
            continue
        means = column.reshape(len(column), -1)
        if promise.per is not None:
            means = means / replies.columns[promise.per].clamp(min=1)[:, None]
        least = means.amin(1)
        for n in torch.nonzero(least < -rounding(torch.float32))[:, 0].tolist():
            fault = f"{name}: {float(least[n]):.3g}, lower than any mean loss of this objective"
            faults.setdefault(int(replies.clients[n]), fault)
    return faults


def contradictions(replies: Replies) -> dict[int, str]:
    """Return the clients whose claims no model or example explains, with the reasons.

    A client chooses the model of its lowest loss, and its directions have length 1, or are 0.
    """
    faults, columns, numbers = dict[int, str](), replies.columns, replies.clients.tolist()
    if {"chosen", "losses"} <= columns.keys():
        chosen, losses = columns["chosen"], columns["losses"].double()
        own, best = losses.gather(1, chosen[:, None])[:, 0], losses.min(1)
        high = own > best.values + rounding(torch.float32) * (1 + best.values.abs())
        for n in torch.nonzero(high)[:, 0].tolist():
            lowest = f"the loss of model {int(best.indices[n])} is lower"
            faults[numbers[n]] = f"chosen: model {int(chosen[n])}, and {lowest}"
    if "vectors" in columns:
        lengths = columns["vectors"].double().norm(dim=1)
        off = torch.minimum((lengths - 1).abs(), lengths).amax(1) > rounding(torch.float32)
        for n in torch.nonzero(off)[:, 0].tolist():
            faults[numbers[n]] = "vectors: a direction whose length is neither 1 nor 0"
    return faults


def check_sent(request: Request, net: Net) -> None:
    """Raise `UsageError` unless sent models have the shape and type of the network's.

    A client gets one model as `theta`, and several as `models` or `moves`.
    """
    each = {name: (rows.table.shape[1:], rows.table.dtype) for name, rows in request.each.items()}
    shared = {name: (tensor.shape, tensor.dtype) for name, tensor in request.shared.items()}
    for name, (shape, dtype) in {**shared, **each}.items():
        if name not in OF_MODELS:
            continue
        sizes, count = request.work.widths(net.layout), "" if name == "theta" else "K"
        right = len(shape) == 1 + len(count) and shape[-1] in sizes and 0 not in shape
        if not right or dtype != net.dtype:
            known = " or ".join(f"({count}, {size})" if count else f"({size},)" for size in sizes)
            raise UsageError(
                f"{name}: a client gets {tuple(shape)} of {dtype}, which is not {known} of "
                f"{net.dtype}, as models are here; what is no whole model has another name, or the "
                "work says in `widths` how many values there may be"
            )
