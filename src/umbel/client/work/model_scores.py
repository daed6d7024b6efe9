"""The scores of many models on a client's training examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work.base import COUNT, Cost, Footprint, Promise, Work
from umbel.client.work.loss_bounds import MAX_LOSS
from umbel.client.work.mean_loss import MeanLoss, mean_losses


@dataclass(frozen=True)
class ModelScores(Work):
    """Work of a client that sends the score (K,) of each of `models` (K, P), and `num_examples`.

    A score is higher for a better model: the accuracy, or the mean loss with a minus.
    """

    #: what a score is: the accuracy, or the mean loss with a minus
    by: Literal["accuracy", "loss"] = "accuracy"

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.by == "loss":
            scores = -mean_losses(net, sent["models"], shard.everything())
        else:
            right, size = torch.zeros(len(sent["models"])).double(), shard.size()
            right = right.to(shard.x.device)
            for batch in shard.everything():
                correct = [
                    batch.total(net.objective.correct(net.outputs(theta, batch.x), batch.y))
                    for theta in sent["models"]
                ]
                right = right + torch.stack(correct).double()
            scores = right / size.clamp(min=1)
        return {"scores": scores, "num_examples": shard.num_examples}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        least, most = (0.0, 1.0) if self.by == "accuracy" else (-MAX_LOSS, MAX_LOSS)
        scores = Promise((sent["models"][0],), torch.float64, least, most, may_be_nan=True)
        return {"scores": scores, "num_examples": COUNT}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return MeanLoss().footprint(sent)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        return MeanLoss().cost(num_examples, sent)
