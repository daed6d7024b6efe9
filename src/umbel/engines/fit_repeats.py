"""Whether a module does the same again, found out by several passes."""

from __future__ import annotations

import torch
from torch import Tensor

from umbel.checks import UsageError
from umbel.client.constants import twin
from umbel.client.drawing import drawing_from
from umbel.client.kernels.general import one_tensor
from umbel.client.layout import tensors_of
from umbel.client.net import Net

ROUNDING = 16
"""Two passes differ by no more than this many roundings of the largest output."""


def check_repeats(net: Net, x: Tensor) -> None:
    """Raise `UsageError` where the same inputs, weights, buffers and seed give other outputs.

    Clients share a module, each of a run's processes has a copy, and a run that is resumed begins
    with a new one: what a module keeps to itself would be another's. What training leaves behind
    must not change an evaluation, either, which has a module of its own.
    """
    module = twin(net.modules.training, net.layout)
    moving = {*net.modules.scratch, *(entry.name for entry in net.layout.rest)}
    buffers = {name: each for name, each in tensors_of(module).items() if name in moving}
    before = {name: buffer.clone() for name, buffer in buffers.items()}

    def passed(training: bool) -> Tensor:
        for name, buffer in buffers.items():
            buffer.copy_(before[name])
        return one_tensor(module.train(training)(x.clone())).detach()

    made: dict[bool, list[Tensor]] = {True: [], False: []}
    for training in (False, True, True, False):
        with torch.no_grad(), drawing_from(seed=0):
            made[training].append(passed(training))
    if not all(_same(first, second, net.eps) for first, second in made.values()):
        raise UsageError(
            "Net: forward gives other outputs when it is called again with the same inputs and "
            "weights: the module counts, keeps what it saw, or draws from a generator of its own, "
            "which a run that is resumed and its other processes do not share; draw as torch.rand "
            "and nn.Dropout do, and keep numbers in buffers (register_buffer)"
        )


def _same(first: Tensor, second: Tensor, eps: float) -> bool:
    if first.shape != second.shape:
        return False
    bound = ROUNDING * eps * float(first.abs().nan_to_num(0, posinf=0).max())
    return torch.allclose(first, second, rtol=0, atol=bound, equal_nan=True)
