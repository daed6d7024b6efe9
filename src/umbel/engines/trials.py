"""What a network does with a few examples of a federation, found out by trying it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from umbel.checks import check
from umbel.client.constants import twin
from umbel.client.drawing import drawing_from, plain_state
from umbel.client.kernels.general import one_tensor
from umbel.client.kernels.in_place import IMAGES
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.engines.fit import sample

APART = 0.05
"""Rounding alone never moves a result by this share of its length."""


def mixes(net: Net, federation: Federation) -> bool:
    """Whether what the network makes of an example depends on the others of its batch.

    If a module draws as it trains, such as one with dropout, only its evaluation is tried, and
    whether it has batch normalisation. One that fails on a single example mixes them, too.
    """
    x, models = sample(net, federation, 3).x, net.new(0)[None]
    training = twin(net.modules.training, net.layout)
    for module in (training, twin(net.modules.evaluating, net.layout)):
        with torch.no_grad(), drawing_from(0):
            before = torch.get_rng_state()
            whole = one_tensor(module(x))
            if not torch.equal(torch.get_rng_state(), before):
                if any(isinstance(part, _BatchNorm) and part.training for part in module.modules()):
                    return True
                continue
            try:
                alone = torch.cat([one_tensor(module(row)) for row in torch.split(x, 1)])
            except Exception:  # as of batch normalisation, which needs two
                return True
        if whole.shape != alone.shape or not agree(whole, alone, models, net.eps):
            return True
    return False


def draws_plainly(net: Net, federation: Federation) -> bool:
    """Whether a pass draws from the generators of Python or NumPy, which batched clients share."""
    batch, theta = sample(net, federation), net.new(0)
    in_place = net.using("in-place")
    with drawing_from(0):
        before = plain_state()
        in_place.gradient(theta, batch)
        in_place.losses(theta, batch)
        return plain_state() != before


def check_general(net: Net, federation: Federation) -> None:
    """Raise `UsageError` where `torch.func` does not take the module."""
    with drawing_from(0):
        try:
            net.gradient(net.new(0), sample(net, federation))
        except RuntimeError as error:
            said = str(error).splitlines()[0]
            expected = f'possible with this module, and "auto" may be: {said}'
            check(False, "engine.kernel", "general", expected)


def with_channels_last(net: Net, federation: Federation) -> Net:
    """The net, with the channels of images last in memory where that changes nothing.

    It makes convolutions, and what comes between them, faster on a CPU; but a module may look at
    that order, as `view` does.
    """
    if net.way.kernel != "in-place" or not any(isinstance(part, IMAGES) for part in net.parts):
        return net
    faster = net.computing(replace(net.way, channels_last=True))
    batch, theta = sample(net, federation, 3), net.new(0)

    def made(one: Net) -> tuple[Tensor, Tensor]:
        with drawing_from(0):
            return one.gradient(theta, batch)[0], one.outputs(theta, batch.x)

    expected = made(net)
    try:
        found = made(faster)
    except RuntimeError:
        return net
    fine = all(_close(one, other) for one, other in zip(found, expected, strict=True))
    return faster if fine else net


def _close(found: Tensor, expected: Tensor) -> bool:
    """Whether two results differ by no more than rounding does."""
    apart = torch.linalg.vector_norm(found - expected)
    return bool(apart <= APART * torch.linalg.vector_norm(expected))


def agree(found: Tensor, expected: Tensor, models: Tensor, eps: float) -> bool:
    """Whether two results differ by no more than rounding, of this eps, of these models (K, P).

    The bound is far above what rounding does, and far below what an example does that should not
    count.
    """
    if not expected.is_floating_point():
        return torch.equal(found, expected)
    largest = float(expected.abs().nan_to_num(0, posinf=0).max())
    # An update is the difference of two models, and rounded as they are.
    bound = largest * eps**0.5 + 100 * float(models.abs().max()) * eps
    return torch.allclose(found, expected, rtol=0, atol=bound, equal_nan=True)
