"""Whether the user's own metrics accept a network's outputs, found out before the first round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from umbel.checks import UsageError
from umbel.client.batches import SLICE, Batch
from umbel.client.metrics import Predictions, measured, predictions
from umbel.client.net import Net
from umbel.client.seeding import drawing_from
from umbel.data.federation import Federation
from umbel.preflight.network import SOME, sample


def check_own_metrics(net: Net, federation: Federation, names: Sequence[str]) -> None:
    """Raise `UsageError`, as the first evaluation would, if one of the user's metrics always fails.

    A metric may fail for some examples, or for the equal outputs of an untrained model, but work
    for a trained one. It counts as always failing if it fails with the same message for everything
    that is tried.
    """
    own = [name for name in names if ":" in name]
    if not own:
        return
    with torch.no_grad(), drawing_from(seed=0):
        tried = list(_predicted(net, federation))
        for name in own:
            first, *others = (_failure(name, one) for one in tried)
            if first is not None and all(other == first for other in others):
                raise UsageError(first)


def _failure(name: str, found: Predictions) -> str | None:
    """What a metric is refused with; None where it is not."""
    try:
        measured([name], found)
    except UsageError as error:
        return str(error)
    return None


def _predicted(net: Net, federation: Federation) -> Iterator[Predictions]:
    """What an untrained model predicts of examples of the largest client, and of all clients.

    Each is there twice, with noise besides, as a last layer may begin with zeros.
    """
    split = federation.test if len(federation.test.x) else federation.train
    theta = net.new(seed=0)
    x, y = split.typed(int(split.sizes.argmax()), net.dtype)
    for batch in (Batch(x[:SLICE], y[:SLICE]), sample(net, federation, SOME)):
        outputs = net.outputs(theta, batch.x)
        for made in (outputs, outputs + torch.randn_like(outputs)):
            yield predictions(net.objective, made, batch.y)
