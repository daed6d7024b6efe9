"""How good a model is on a client's test or validation examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from umbel.client.batches import Shard, num_labels
from umbel.client.net import Net
from umbel.client.objectives import Objective
from umbel.client.work.base import Promise, Work

MAX_LOSS = 1e12
"""Largest loss of an example that is recorded: targets may be large, unlike what is averaged."""


@dataclass(frozen=True)
class Evaluation(Work):
    """Sums of loss and of right answers of the received model over the examples of a split."""

    split: Literal["validation", "test"] = "test"

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return evaluated(net.objective, shard, lambda x: net.outputs(sent["theta"], x))

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:  # noqa: ARG002
        loss = Promise((), torch.float64, -MAX_LOSS, MAX_LOSS, per="num_examples")
        # Objectives such as that of regressions have no right answers.
        right = Promise((), torch.float64, 0, 1, per="num_examples", may_be_nan=True)
        return {"loss": loss, "right": right, "num_examples": Promise((), torch.int64, low=0)}


def evaluated(
    objective: Objective, shard: Shard, outputs_of: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """Sums of loss and of right answers over the examples, and how many these are.

    Where examples have many labels, the sums are means over these times the number of examples.
    """
    loss = right = torch.zeros((), dtype=torch.float64, device=shard.x.device)
    for batch in shard.everything():
        outputs = outputs_of(batch.x)
        loss = loss + batch.total(objective.losses(outputs, batch.y).double())
        right = right + batch.total(objective.correct(outputs, batch.y).double())
    if num_labels(shard.y) is not None:
        share = shard.num_examples / shard.size().clamp(min=1)
        loss, right = loss * share, right * share
    return {"loss": loss, "right": right, "num_examples": shard.num_examples}
