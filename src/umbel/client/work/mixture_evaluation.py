"""Evaluation of a mixture of models on a client's test or validation examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.metrics import metric
from umbel.client.net import Net
from umbel.client.work.base import Footprint, Promise, Work
from umbel.client.work.evaluation import Evaluation, evaluated


@dataclass(frozen=True)
class MixtureEvaluation(Work):
    """`Evaluation` of the mixture of `models` (K, P) with the client's `weights` (K,)."""

    split: Literal["validation", "test"] = "test"
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.metrics:
            metric(name)

    @property
    def alone(self) -> bool:
        return bool(self.metrics)

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        models, weights, objective = sent["models"], sent["weights"], net.objective

        def mixed(x: Tensor) -> Tensor:
            return objective.mixed(net.each(lambda theta: net.outputs(theta, x), models), weights)

        return evaluated(objective, shard, mixed, self.metrics)

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return Evaluation(metrics=self.metrics).promises(sent)

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return Footprint(sent["models"][0])
