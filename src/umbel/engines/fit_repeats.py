"""Whether a module does the same again, found out by two passes."""

from __future__ import annotations

import torch
from torch import Tensor

from umbel.checks import UsageError
from umbel.client.constants import twin
from umbel.client.drawing import drawing_from
from umbel.client.kernels.general import one_tensor
from umbel.client.net import Net


def check_repeats(net: Net, x: Tensor) -> None:
    """Raise `UsageError` where the same inputs, weights, buffers and seed give other outputs.

    Clients share a module, each of a run's processes has a copy, and a run that is resumed begins
    with a new one: what a module keeps to itself would be another's.
    """
    module = twin(net.modules.training, net.layout)
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    made = []
    for _ in range(2):
        with torch.no_grad(), drawing_from(seed=0):
            for name, buffer in module.named_buffers():
                buffer.copy_(buffers[name])
            made.append(one_tensor(module(x.clone())).detach())
    first, second = made
    bound = float(first.abs().nan_to_num(0, posinf=0).max()) * net.eps**0.5
    same = first.shape == second.shape
    if not same or not torch.allclose(first, second, rtol=0, atol=bound, equal_nan=True):
        raise UsageError(
            "Net: forward gives other outputs when it is called again with the same inputs and "
            "weights: the module counts, or draws from a generator of its own, which a run that "
            "is resumed and its other processes do not share; draw as torch.rand and nn.Dropout "
            "do, and keep numbers in buffers (register_buffer)"
        )
