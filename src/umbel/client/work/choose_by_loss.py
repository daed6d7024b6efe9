"""Choose the model that fits best, then work with it: the client's side of IFCA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal

import torch
from torch import Tensor

from umbel.client.batches import Batch, Shard
from umbel.client.net import Net
from umbel.client.work.base import Cost, Footprint, Promise, Work
from umbel.client.work.loss_bounds import promised
from umbel.client.work.mean_loss import MeanLoss, mean_losses

Judge = Literal["all", "mini-batch"]


@dataclass(frozen=True)
class ChooseByLoss(Work):
    """Do the work `then` with the one of `models` (K, P) that has the lowest training loss.

    The loss is computed on all training examples, or on the first mini-batch that `then` draws, if
    it draws any. The reply is the reply of `then` with `chosen`, the number of the model, and
    `losses` (K,).
    """

    relays: ClassVar[bool] = True
    around: ClassVar[str] = "then"

    then: Work  #: the work with the chosen model
    #: whether losses are those of all training examples, or of the first mini-batch
    judge: Judge = "all"

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        models = sent["models"]
        losses = mean_losses(net, models, self._judged(shard))
        chosen = losses.argmin()
        theta = models.index_select(0, chosen[None])[0]
        reply = self.then(net, shard, {**sent, "theta": theta, "chosen": chosen})
        return {**reply, "chosen": chosen, "losses": losses}

    def _judged(self, shard: Shard) -> Iterator[Batch]:
        by_batch = self.judge == "mini-batch" and bool(shard.planned.steps)
        return islice(shard.batches(), 1) if by_batch else shard.everything()

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        num_models, *shape = sent["models"]
        then = self.then.promises({**sent, "theta": torch.Size(shape)})
        chosen = Promise((), torch.int64, low=0, high=num_models - 1)
        return {**then, "chosen": chosen, "losses": promised(num_models)}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return MeanLoss().footprint(sent) | self.then.footprint(sent)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        steps, width = self.batching.size(num_examples)
        judged = width if self.judge == "mini-batch" and steps else num_examples
        return Cost(losses=sent["models"][0] * judged) + self.then.cost(num_examples, sent)
