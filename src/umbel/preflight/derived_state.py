"""Whether a buffer follows from the weights by a rule that a mean of models breaks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.parametrize import ParametrizationList

from umbel.checks import UsageError
from umbel.client.constants import copied
from umbel.client.layout import TRACKING, tensors_of
from umbel.client.net import Net
from umbel.client.seeding import drawing_from
from umbel.preflight.models import changed, close

ROUNDING = 100
"""A mean of buffers differs from the buffer of a mean by no more than this many roundings."""


def check_derived(net: Net, theta: Tensor, x: Tensor, moved: Sequence[str]) -> None:
    """Raise `UsageError` if training writes in a buffer what is computed from the weights alone.

    An exponential mean of weights is fine: the mean over models is that of their mean. But vectors
    of length 1 have no mean of length 1. `moved` are buffers that training changes although they
    are not in theta. What a parametrisation holds is found again for each model (`Net.settled`).
    """
    names = {*moved, *(entry.name for entry in net.layout.rest)} - _known(net)
    others = x[:1].expand_as(x)
    if not names or torch.equal(x, others):
        return

    def after(model: Tensor, inputs: Tensor) -> dict[str, Tensor]:
        module = copied(net.modules.training)
        tensors = tensors_of(module)
        with torch.no_grad(), drawing_from(seed=0):
            for name, values in net.layout.tensors(model).items():
                tensors[name].copy_(values)
            module(inputs.clone())
        return {name: tensors_of(module)[name] for name in names}

    models = theta, changed(net, theta)
    first, last = (after(model, x) for model in models)
    middle = after((models[0] + models[1]) / 2, x)
    without = [after(model, others) for model in models]
    for name in sorted(names):
        free = torch.equal(first[name], without[0][name])
        free = free and torch.equal(last[name], without[1][name])
        if not free or not first[name].is_floating_point():
            continue
        if not close((first[name] + last[name]) / 2, middle[name], ROUNDING * net.eps):
            raise UsageError(
                f"Net: training computes the buffer {name} from the weights alone, and a mean of "
                "such buffers does not belong to the mean of the weights: let forward compute it "
                "in every pass, or do it in a parametrisation (torch.nn.utils.parametrize), whose "
                "buffers are found again for each model"
            )


def _known(net: Net) -> set[str]:
    """The buffers of normalisation layers and of parametrisations."""
    module = net.modules.training
    return {
        f"{place}.{name}" if place else name
        for place, part in module.named_modules()
        if isinstance(part, (*TRACKING, ParametrizationList))
        for name, _ in part.named_buffers()
    }
