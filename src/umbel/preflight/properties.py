"""Properties of a network, found by trying it on a few examples of a federation."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from umbel.checks import check, first_line
from umbel.client.batches import Batch
from umbel.client.constants import twin
from umbel.client.kernel_choice import Way, kernel_of
from umbel.client.kernels.accumulating import Accumulating
from umbel.client.kernels.general import General, one_tensor
from umbel.client.kernels.in_place import IMAGES, InPlace
from umbel.client.layout import unflatten
from umbel.client.net import Net
from umbel.client.seeding import drawing_from, plain_state
from umbel.data.federation import Federation
from umbel.preflight.sample import sample
from umbel.preflight.torch_errors import FAILURES

APART = 0.05
"""Rounding alone never moves a value by this share of the largest."""

MIXED = 0.01
"""Nor does it move the gradient of one tensor by this share, and 8 roundings."""


def mixes(net: Net, federation: Federation) -> bool:
    """Return True if an example's outputs or gradient depend on the others of its batch.

    The gradient alone may depend on them, as with nn.Embedding(scale_grad_by_freq=True). A module
    that draws random numbers in training, such as one with dropout, is tried in evaluation mode
    only, and checked for batch normalisation. A module that fails on a single example counts as
    mixing examples, too.
    """
    x, theta = sample(net, federation, 3).x, net.new(0)
    steady = []
    for module in (net.modules.training, net.modules.evaluating):
        told = _outputs_mix(net, module, x, theta)
        if told:
            return True
        if told is not None:
            steady.append(module)
    batch = sample(net, federation)
    return any(_gradient_mixes(net, module, batch, theta) for module in steady[:1])


def evaluates_apart(net: Net, federation: Federation) -> bool:
    """Return True if in evaluation outputs depend neither on other examples nor on chance."""
    x = sample(net, federation, 3).x
    return _outputs_mix(net, net.modules.evaluating, x, net.new(0)) is False


def _outputs_mix(net: Net, module: nn.Module, x: Tensor, theta: Tensor) -> bool | None:
    """Return True if outputs depend on other examples in this mode; None if they are random."""
    module = twin(module, net.layout)
    with torch.no_grad(), drawing_from(0):
        before, plain = torch.get_rng_state(), plain_state()
        whole = one_tensor(module(x))
        if plain_state() != plain or not torch.equal(torch.get_rng_state(), before):
            normed = (isinstance(part, _BatchNorm) and part.training for part in module.modules())
            return True if any(normed) else None
        try:
            alone = torch.cat([one_tensor(module(row)) for row in torch.split(x, 1)])
        except Exception:  # as of batch normalisation, which needs two
            return True
    return not agree(whole, alone, theta[None], net.eps)


def _gradient_mixes(net: Net, module: nn.Module, batch: Batch, theta: Tensor) -> bool:
    """Return True if a batch's gradient is not the mean of its examples' gradients.

    The first example is there twice, for those that count how often a batch has a value.
    """
    batch = Batch(torch.cat([batch.x, batch.x[:1]]), torch.cat([batch.y, batch.y[:1]]))
    kernel = InPlace(General(replace(net.modules, training=module), net.objective))
    with drawing_from(0):
        try:
            whole, _, _ = kernel.gradient(theta, batch)
            alone, _, _ = Accumulating(kernel, 1).gradient(theta, batch)
        except RuntimeError:  # in evaluation a module need not have a gradient
            return False
    found, expected = (unflatten(one, net.layout.weights) for one in (whole, alone))
    # Some tensors have no gradient but for rounding, which is small beside the others' gradients.
    least = net.eps**0.5 * float(torch.linalg.vector_norm(alone))
    share = MIXED + 8 * net.eps
    return not all(close(found[name], one, share, least) for name, one in expected.items())


def draws_plainly(net: Net, federation: Federation) -> bool:
    """Return True if a pass draws from Python's or NumPy's generator, which clients share."""
    batch, theta = sample(net, federation), net.new(0)
    in_place = net.using("in-place")
    with drawing_from(0):
        before = plain_state()
        in_place.gradient(theta, batch)
        in_place.losses(theta, batch)
        return plain_state() != before


def check_general(net: Net, federation: Federation) -> None:
    """Raise `UsageError` if `torch.func` does not take the module."""
    with drawing_from(0):
        try:
            net.gradient(net.new(0), sample(net, federation))
        except RuntimeError as error:
            said = first_line(error)
            expected = f'possible with this module, and "auto" may be: {said}'
            check(False, "engine.kernel", "general", expected)


def with_channels_last(net: Net, federation: Federation) -> Net:
    """The net with the channels of images last in memory, if that does not change its results.

    It makes convolutions, and what comes between them, faster on a CPU; but a module may look at
    that order, as `view` does. A module that draws random numbers in training draws them in another
    order; it is compared in evaluation mode.
    """
    if net.way.kernel != "in-place" or not any(isinstance(part, IMAGES) for part in net.parts):
        return net
    theta, modules = net.new(0), net.modules
    with drawing_from(0):
        before = torch.get_rng_state()
        net.gradient(theta, sample(net, federation, 3))
        if not torch.equal(torch.get_rng_state(), before):
            modules = replace(modules, training=modules.evaluating)

    def made(way: Way, size: int) -> tuple[Tensor, Tensor]:
        batch, kernel = sample(net, federation, size), kernel_of(modules, net.objective, way)
        with drawing_from(0):
            return kernel.gradient(theta, batch)[0], kernel.outputs(theta, batch.x)

    way = replace(net.way, channels_last=True)
    try:
        expected = [made(net.way, 3)]  # in evaluation a module need not have a gradient
        with suppress(*FAILURES):  # batch normalisation takes no single image
            expected.append(made(net.way, 1))  # PyTorch's instance norm has another gradient here
        found = [made(way, size) for size in (3, 1)[: len(expected)]]
        faster = net.computing(way)
        faster.gradient(theta, sample(net, federation, 3))
    except RuntimeError:
        return net
    pairs = zip(chain(*found), chain(*expected), strict=True)
    return faster if all(close(one, other, APART) for one, other in pairs) else net


def close(found: Tensor, expected: Tensor, share: float, least: float = 0) -> bool:
    """Return True if no value differs by more than a share of the largest, and `least`."""
    if found.shape != expected.shape or not expected.is_floating_point():
        return torch.equal(found, expected)
    largest = float(expected.abs().nan_to_num(0, posinf=0).max()) if expected.numel() else 0.0
    return torch.allclose(found, expected, rtol=0, atol=share * largest + least, equal_nan=True)


def agree(found: Tensor, expected: Tensor, models: Tensor, eps: float) -> bool:
    """Return True if two results of these models (K, P) differ by rounding of this eps alone.

    The bound is far above what rounding does, and far below what an example does that should not
    count. An update is the difference of two models, and rounded as they are.
    """
    return close(found, expected, eps**0.5, 100 * float(models.abs().max()) * eps)
