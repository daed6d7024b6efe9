"""Evaluation of the versions of a client's own model, and of interpolated models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work.base import MEMORY, Footprint, Promise, Work
from umbel.client.work.evaluation import Evaluation, evaluated
from umbel.client.work.loss_bounds import MAX_LOSS


@dataclass(frozen=True)
class PersonalEvaluation(Work):
    """`Evaluation` of interpolations between the received model and a client's own versions.

    Row c of `shares` (C, E) defines model c from `theta` (P,) and the versions in the memory (E,
    P): theta + sum_e shares[c, e] (version_e - theta). Columns of replies have C values. The loss
    of a model that does not fit at all is bounded, unless none fits.
    """

    split: Literal["validation", "test"] = "validation"
    metrics: tuple[str, ...] = ()

    @property
    def alone(self) -> bool:
        return bool(self.metrics)

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        theta, shares = sent["theta"], sent["shares"]
        models = theta + shares.to(theta.dtype) @ (sent[MEMORY] - theta)

        # Labels of which none counts are no examples, for any of the models.
        names = ("loss", "right", *self.metrics, "num_examples")

        def judged(theta: Tensor) -> Tensor:
            outputs_of = partial(net.outputs, theta)
            found = evaluated(net.objective, shard, outputs_of, self.metrics)
            return torch.stack([found[name] for name in names])

        *values, counts = net.each(judged, models).unbind(1)
        found = dict(zip(names, values, strict=False))
        # One model that does not fit would cost the others their answer.
        most = MAX_LOSS * counts
        within = found["loss"].abs() <= most
        found["loss"] = found["loss"].where(within | ~within.any(), most)
        return {**found, "num_examples": counts[0].to(shard.num_examples.dtype)}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        one, several = Evaluation(self.split, self.metrics).promises(sent), (sent["shares"][0],)
        each = {name: replace(promise, shape=several) for name, promise in one.items()}
        return {**each, "num_examples": one["num_examples"]}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        models, versions = sent["shares"]
        return Footprint(models, models=models + versions)
