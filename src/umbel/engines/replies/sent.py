"""Whether the models in a request are models of the network."""

from __future__ import annotations

from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.engines.replies.validation import OF_MODELS
from umbel.flow import Request


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
