"""Evaluation of a model on a client's test or validation examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from umbel.client.batches import Shard, num_labels
from umbel.client.metrics import Metric, measured, metric, predictions
from umbel.client.net import Net
from umbel.client.objectives import Objective
from umbel.client.work.base import Promise, Work
from umbel.client.work.loss_bounds import MAX_LOSS


@dataclass(frozen=True)
class Evaluation(Work):
    """Sums of loss and of correct predictions of the received model over a split's examples.

    Each of `metrics` is a further column: one number for all examples, NaN if it is not defined.
    """

    split: Literal["validation", "test"] = "test"
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.metrics:
            metric(name)

    @property
    def alone(self) -> bool:
        return bool(self.metrics)

    @property
    def joins(self) -> bool:
        return not self.metrics

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        theta = sent["theta"]
        return evaluated(net.objective, shard, lambda x: net.outputs(theta, x), self.metrics)

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:  # noqa: ARG002
        loss = Promise((), torch.float64, -MAX_LOSS, MAX_LOSS, per="num_examples")
        # Objectives such as regression have no accuracy.
        right = Promise((), torch.float64, 0, 1, per="num_examples", may_be_nan=True)
        always = {"loss": loss, "right": right, "num_examples": Promise((), torch.int64, low=0)}
        return {**always, **{name: _promise(metric(name)) for name in self.metrics}}


def _promise(about: Metric) -> Promise:
    return Promise((), torch.float64, about.low, about.high, may_be_nan=True)


def evaluated(
    objective: Objective,
    shard: Shard,
    outputs_of: Callable[[Tensor], Tensor],
    metrics: Sequence[str] = (),
) -> dict[str, Tensor]:
    """Sums of loss and of correct predictions over examples, number of examples, and metrics.

    If examples have many labels, the sums are means over the labels times the number of examples.
    """
    loss = right = torch.zeros((), dtype=torch.float64, device=shard.x.device)
    seen: list[tuple[Tensor, Tensor]] = []
    for batch in shard.everything():
        outputs = outputs_of(batch.x)
        if metrics:
            seen.append((outputs.detach(), batch.y))
        loss = loss + batch.total(objective.losses(outputs, batch.y).double())
        right = right + batch.total(objective.correct(outputs, batch.y).double())
    count = shard.num_examples
    if num_labels(shard.y) is not None:
        size = shard.size()
        # In this order, as count / size is rounded: all right labels must make `count`, not more.
        loss, right = (total / size.clamp(min=1) * count for total in (loss, right))
        count = count * (size > 0)  # labels of which none counts carry no information
    sums = {"loss": loss, "right": right, "num_examples": count}
    return {**sums, **_measured(metrics, objective, seen)}


def _measured(
    metrics: Sequence[str], objective: Objective, seen: Sequence[tuple[Tensor, Tensor]]
) -> dict[str, Tensor]:
    """The metrics of all examples; NaN without examples."""
    if not metrics or not seen:
        return {name: torch.tensor(torch.nan, dtype=torch.float64) for name in metrics}
    outputs, y = (torch.cat(parts) for parts in zip(*seen, strict=True))
    return measured(metrics, predictions(objective, outputs, y))
