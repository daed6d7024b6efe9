"""Train a client's head, and then the body beneath it: the client's side of FedCCFA."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from umbel.client.batches import Batch, Shard, Step, Steps
from umbel.client.layout import HEAD, spans_of
from umbel.client.net import Net
from umbel.client.work.base import Cost, Promise, Work
from umbel.client.work.local_training import LocalTraining
from umbel.client.work.prototype_training import check_labels, class_means
from umbel.client.work.schemes import HeadFirst

ORDER = HeadFirst(head_epochs=1)
"""One epoch of the head, and then those of the body."""

PER_CLASS, STEPS = 5, 5
"""Most examples of a class for the balanced head, and its steps."""

TEMPERATURE, UNKNOWN = 0.1, -1e4
"""The first divides cosines; the second is in place of those with unknown prototypes."""


@dataclass(frozen=True)
class AlignedTraining(Work):
    """Train the head of `theta` (P,) for an epoch, and then the body as `local` says.

    The body's loss has a term for each example: `surprise` by the prototypes (C, F), times the
    entropy of the client's labels and `weight`. The reply has the `update` (P,); the rows (C, F) of
    a `balanced` head, that received but trained on few examples of each class; and the `means` (C,
    F) of features by class after training, of how many `examples` (C,).
    """

    local: LocalTraining  #: mini-batches, learning rate and optimizer of the body
    head_rate: float  #: learning rate of the head, by that of the body
    weight: float  #: of the term

    @property
    def inner(self) -> Work:
        return replace(self.local, scheme=ORDER)

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        check_labels(net, shard)
        theta, prototypes, mask = sent["theta"], sent["prototypes"], net.layout.mask((HEAD,))
        of_head, of_body = ORDER.divided(shard, self.local)
        slow = replace(self.local.descent, spans=spans_of(~mask))
        fast = replace(slow, lr=slow.lr * self.head_rate, spans=spans_of(mask))

        # The first of each class in the head's epoch, whose order is drawn anew in each round.
        rows = of_head.planned.rows.flatten()  # (E,)
        places, classes = torch.where(rows >= 0, rows, ~rows), torch.arange(len(prototypes))
        labels = (shard.y[places, None] == classes.to(rows)) & (rows >= 0)[:, None]  # (E, C)
        number = labels.cumsum(0)  # of an example among those of its class, from 1
        found = [places[(labels & (number == n + 1)).int().argmax(0)] for n in range(PER_CLASS)]
        few = torch.cat([f.where(number[-1] > n, ~f) for n, f in enumerate(found)])
        drawn = Steps(few.expand(STEPS, -1), [Step(few, padded=True)] * STEPS)
        copy = theta + net.descend(theta, replace(shard, planned=drawn), fast)
        update = net.descend(theta, of_head, fast)

        shares = number[-1] / number[-1].sum()
        weight = (self.weight * torch.special.entr(shares).sum()).to(theta.dtype)

        def terms(batch: Batch) -> Callable[[Tensor], Tensor]:
            return lambda z: weight * surprise(z, batch.y, prototypes)

        update = update + net.descend_with(theta + update, of_body, slow, terms)
        means = class_means(net, theta + update, shard, prototypes)
        return {"update": update, "balanced": copy[net.layout.head[0]], **means}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        rows = Promise(tuple(sent["prototypes"]))
        counts = Promise(rows.shape[:1], torch.int64, low=0)
        return {**self.local.promises(sent), "balanced": rows, "means": rows, "examples": counts}

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        return super().cost(num_examples, sent) + Cost(losses=num_examples)


def surprise(z: Tensor, y: Tensor, prototypes: Tensor) -> Tensor:
    """The cross-entropy (B,) of labels y (B,) by the cosines of features z (B, F) with prototypes.

    Prototypes (C, F) that are 0 are unknown: examples of such a class have none.
    """
    known = prototypes.any(1)
    cosines = normalize(z, dim=1) @ normalize(prototypes, dim=1).t()  # (B, C)
    logs = (cosines / TEMPERATURE).where(known, UNKNOWN).log_softmax(1)
    return -logs.gather(1, y[:, None])[:, 0].where(known.index_select(0, y), 0)
