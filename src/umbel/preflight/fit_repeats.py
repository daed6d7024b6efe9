"""Whether a module's outputs can be repeated, found out by several passes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from umbel.checks import UsageError
from umbel.client.constants import twin
from umbel.client.kernels.general import one_tensor
from umbel.client.kernels.modules import in_mode
from umbel.client.layout import tensors_of
from umbel.client.net import Net
from umbel.client.seeding import drawing_from

ROUNDING = 16
"""Two passes differ by no more than this many roundings of the largest output."""

KEEPS = (
    "the module counts, keeps what it saw, or draws from a generator of its own, which a run that "
    "is resumed and its other processes do not share; draw as torch.rand and nn.Dropout do, and "
    "keep numbers in buffers (register_buffer)"
)

Passed = Callable[[bool], Tensor]
"""Outputs of a pass in training or in evaluation: each from the same buffers and draws."""


def check_repeats(net: Net, x: Tensor) -> None:
    """Raise `UsageError` if equal inputs, weights, buffers and seeds do not give equal outputs.

    Clients share a module, every process of a run has its own copy, and a resumed run starts with a
    new one: values that a module stores outside of its buffers would pass from one client to
    another. Training must not change evaluations through them either; these use another module.
    """
    passed = _passes(net, x)
    first = {training: passed(training) for training in (False, True)}

    def same(passed: Passed) -> bool:
        share = ROUNDING * net.eps
        return all(close(first[mode], passed(mode), share) for mode in (True, False))

    if not same(passed):
        again = "Net: forward gives other outputs when it is called again with the same inputs"
        raise UsageError(f"{again} and weights: {KEEPS}")
    if not same(_passes(net, x, before=x[:1].expand_as(x))):
        after = "Net: forward gives other outputs after it was called with other inputs"
        raise UsageError(f"{after}: {KEEPS}")

    def beside_the_other_mode(training: bool) -> Tensor:
        in_mode(net.modules.training, not training)
        return passed(training)

    try:
        alone = same(beside_the_other_mode)
    finally:
        in_mode(net.modules.training, training=True)
    if not alone:
        raise UsageError(
            "Net: forward looks at whether the module that was built is in training, while copies "
            "of it train: a lambda, function or hook made in __init__ holds on to self; make it a "
            "method"
        )


def _passes(net: Net, x: Tensor, before: Tensor | None = None) -> Passed:
    """Passes of x by one new copy of the module, which may be given other inputs before."""
    module = twin(net.modules.training, net.layout)
    moving = {*net.modules.scratch, *(entry.name for entry in net.layout.rest)}
    buffers = {name: each for name, each in tensors_of(module).items() if name in moving}
    at_first = {name: buffer.clone() for name, buffer in buffers.items()}

    def passed(training: bool, given: Tensor = x) -> Tensor:
        for name, buffer in buffers.items():
            buffer.copy_(at_first[name])
        with torch.no_grad(), drawing_from(seed=0):
            return one_tensor(in_mode(module, training)(given.clone())).detach()

    if before is not None:
        passed(True, before)
    return passed


def close(first: Tensor, second: Tensor, share: float) -> bool:
    """Whether two outputs differ by no more than this share of the largest finite one."""
    if first.shape != second.shape:
        return False
    bound = share * float(first.abs().nan_to_num(0, posinf=0).max())
    return torch.allclose(first, second, rtol=0, atol=bound, equal_nan=True)
