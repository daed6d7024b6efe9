"""The gradient of the training loss at one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.client.batches import Batch, Shard
from umbel.client.net import Net
from umbel.client.work.base import COUNT, UNBATCHED, Batching, Cost, Footprint, Promise, Work
from umbel.client.work.local_training import Everything, batch_width, check_batch_size, first_batch


@dataclass(frozen=True)
class Gradient(Work):
    """Work of a client that sends the gradient (P,) of its mean training loss at a model."""

    batch_size: int | Everything = "all"  #: examples in the mini-batch of the gradient, or "all"

    def __post_init__(self) -> None:
        check_batch_size(self.batch_size)

    @property
    def batching(self) -> Batching:
        return UNBATCHED if self.batch_size == "all" else first_batch(self.batch_size)

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        theta = sent["theta"]
        if self.batch_size == "all":
            gradient = gradient_of_all(net, shard, theta)
        else:
            (batch,) = shard.batches()
            gradient = padded_gradient(net, theta, batch)
        return {"gradient": gradient, "num_examples": shard.num_examples}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {"gradient": Promise(tuple(sent["theta"])), "num_examples": COUNT}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:  # noqa: ARG002
        return Footprint() if self.batch_size == "all" else Footprint(0, 1)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:  # noqa: ARG002
        return Cost(gradients=batch_width(num_examples, self.batch_size))


def padded_gradient(net: Net, theta: Tensor, batch: Batch) -> Tensor:
    """Gradient (P,) on one batch, 0 for values that are not trained."""
    gradient, rest = net.gradient(theta, batch)
    return torch.cat([gradient, torch.zeros_like(rest)]) if len(rest) else gradient


def gradient_of_all(net: Net, shard: Shard, theta: Tensor) -> Tensor:
    """Gradient (P,) of the mean loss over all training examples.

    It is a sum over slices, unless the network's output for an example depends on other examples.
    """
    if net.way.whole and len(shard.in_order) > 1:
        return padded_gradient(net, theta, shard.whole())
    total, size = torch.zeros_like(theta), shard.size()
    for batch in shard.everything():
        share = (batch.size() / size).to(theta.dtype)
        total = total + share * padded_gradient(net, theta, batch)
    return total
