"""Train a model to be good one gradient step later: the client's side of Per-FedAvg."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from umbel.checks import check, first_line
from umbel.client.batches import Batch, Plan, Shard
from umbel.client.descent import Meta, Variant
from umbel.client.kernels.general import with_gradient
from umbel.client.net import Net
from umbel.client.seeding import generators_restored
from umbel.client.work.base import Batching, Cost, Footprint, Promise, Work
from umbel.client.work.local_training import LocalTraining

__all__ = ["MetaTraining", "Variant"]


@dataclass(frozen=True)
class MetaTraining(Work):
    """Work of Per-FedAvg: train a model to be good after a gradient step (Fallah et al. 2020).

    It descends f(w - alpha grad f(w)), whose gradient is (I - alpha H(w)) grad f(w - alpha grad
    f(w)). Each of the three factors has its own mini-batch, drawn as in `local`: the inner
    gradient, the outer gradient v, and the Hessian H. "first-order" leaves H out, "hessian-free"
    uses (grad f(w + delta v) - grad f(w - delta v)) / 2 delta for H v, and "exact" differentiates
    twice. If a ReLU switches between the two points, "hessian-free" contains the gradient's jump
    divided by 2 delta; whether a ReLU switches may depend on the last bit. H v is always computed
    in full precision.
    """

    local: LocalTraining  #: mini-batches, learning rate and optimizer
    alpha: float  #: alpha, the learning rate of the inner step
    variant: Variant  #: computation of the term with the Hessian
    delta: float  #: for "hessian-free": the two gradients are taken at w + delta v and w - delta v

    def at_round(self, number: int) -> MetaTraining:
        """The same with the learning rate of this round, counted from 0."""
        return replace(self, local=self.local.at_round(number))

    @property
    def batching(self) -> Batching:
        return Batching(self._plan, shape=self._shape)

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        precise = _in_full_precision(net) if self.variant == "hessian-free" else net
        curved = partial(self._hessian_times, precise)
        rule = Meta(self.local.descent, self.alpha, self.variant, self.delta, curved)
        update = net.descend(sent["theta"], shard, rule)
        return {"update": update, "num_examples": shard.num_examples}

    def _plan(self, num_examples: int, seed: int) -> Plan:
        """The mini-batches of each step in sequence: inner, outer, and for the Hessian."""
        seeds = np.random.SeedSequence(seed).generate_state(self._drawn, np.uint64)
        plans = np.stack([self.local.batching.plan(num_examples, int(s)) for s in seeds], axis=1)
        return plans.reshape(-1, plans.shape[-1])

    def _shape(self, num_examples: int) -> tuple[int, int]:
        steps, width = self.local.shape(num_examples)
        return self._drawn * steps, width

    @property
    def _drawn(self) -> int:
        return 2 if self.variant == "first-order" else 3

    def _hessian_times(self, net: Net, vector: Tensor, theta: Tensor, batch: Batch) -> Tensor:
        """Return H v (num_weights,)."""
        rest = theta[net.layout.num_weights :]
        if self.variant == "exact":
            return _differentiated_twice(vector, net, theta, batch)
        # Dropout must draw the same mask both times: otherwise masks would cause the difference.
        with generators_restored(theta.device):
            if theta.is_cuda:  # for cuDNN, which restarts when the state is set
                torch.cuda.set_rng_state(torch.cuda.get_rng_state(theta.device), theta.device)
            ahead, _ = net.gradient(_moved(theta, self.delta * vector, rest), batch)
        behind, _ = net.gradient(_moved(theta, -self.delta * vector, rest), batch)
        return (ahead - behind) / (2 * self.delta)

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return self.local.promises(sent)

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return replace(self.local.footprint(sent), models=4)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        of_curvature = {"first-order": 0, "exact": 1, "hessian-free": 2}
        return self.local.cost(num_examples, sent) * (2 + of_curvature[self.variant])


def _in_full_precision(net: Net) -> Net:
    """The same net in full precision: in bfloat16, small differences are mostly rounding."""
    if net.way.precision == "full":
        return net
    return net.computing(replace(net.way, precision="full"))


def _differentiated_twice(vector: Tensor, net: Net, theta: Tensor, batch: Batch) -> Tensor:
    """Return the exact H v (num_weights,).

    Raises `UsageError` if `torch.func` can't compute second derivatives of the module.
    """
    cut = net.layout.num_weights
    rest = theta[cut:]

    def along(weights: Tensor) -> Tensor:
        slope, *_ = with_gradient(lambda w: (net.training_loss(w, rest, batch), rest), weights)
        return slope @ vector

    try:
        curved, *_ = with_gradient(lambda w: (along(w), rest), theta[:cut])
    except torch.OutOfMemoryError:  # not a property of the module
        raise
    except RuntimeError as error:
        said = first_line(error)
        expected = f'possible with this module; "first-order" and "hessian-free" are: {said}'
        check(False, "algorithm.variant", "exact", expected)
    return curved


def _moved(theta: Tensor, by: Tensor, rest: Tensor) -> Tensor:
    """theta with changed weights and another rest."""
    return torch.cat([theta[: len(by)] + by, rest])
