"""Whether outputs are those of the given model, found out by another model than the first."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor, nn

from umbel.checks import UsageError
from umbel.client.constants import copied
from umbel.client.kernels.general import General, one_tensor
from umbel.client.kernels.modules import in_mode
from umbel.client.layout import tensors_of
from umbel.client.net import Net
from umbel.client.seeding import drawing_from
from umbel.preflight.fit_gradient import ends_of, leaves_of
from umbel.preflight.fit_repeats import close

CHANGE = 0.1
"""Every value of the other model differs from the first by up to this share."""


def check_models(net: Net, theta: Tensor, x: Tensor) -> None:
    """Compare the outputs of another model than theta (P,) with those of plain PyTorch.

    The net must have given outputs of theta before. Raises `UsageError` if the outputs are not
    those of the model that it is given.
    """
    other = changed(net, theta)
    kernel = General(net.modules, net.objective)
    try:
        expected = _plainly(net, other, x)
        with torch.no_grad(), drawing_from(seed=0):
            found = kernel.outputs(other, x.clone()).detach()
    except Exception:  # forward may have bounds for its values, which training may respect
        return
    if close(expected, found, net.eps**0.5):  # the same operations, but in other memory
        return
    held: list[str] = []
    with suppress(Exception), torch.enable_grad(), drawing_from(seed=0):
        held = _reached(kernel.outputs(other, x.clone()), net.modules.evaluating)
    if held:
        raise UsageError(
            f"Net: forward takes {held[0]} from a list, dict or functools.partial made in "
            "__init__, where it keeps its first values whatever the model: use the attribute "
            "itself, or hold parameters in nn.ParameterList or nn.ParameterDict"
        )
    raise UsageError(
        "Net: in evaluation the module computes with weights that it prepared in train(), eval() "
        "or an earlier pass, and which are not those of the model that it is given: let every "
        "pass compute them from the parameters (in loralib, merge_weights=False)"
    )


def changed(net: Net, theta: Tensor) -> Tensor:
    """Another model: values keep their signs, but tensors of zeros get small values."""
    share = max(CHANGE, 4 * net.eps**0.5)  # enough for coarse types to show it
    other = theta.clone()
    for values in net.layout.tensors(other).values():
        steps = torch.arange(values.numel(), dtype=torch.float).view(values.shape)
        wave = steps.cos_().mul_(share).to(values)
        if values.any():
            values.mul_(wave.add_(1))
        else:
            values.copy_(wave)
    return other


def _plainly(net: Net, theta: Tensor, x: Tensor) -> Tensor:
    """Outputs in evaluation by a module that got these values in training mode."""
    # A copy of all tensors: what the module does at a switch must not reach the net's own.
    module = copied(net.modules.training)
    own = tensors_of(module)
    with torch.no_grad():
        for name, values in net.layout.tensors(theta).items():
            own[name].copy_(values)
        with drawing_from(seed=0):
            return one_tensor(in_mode(module, training=False)(x.clone())).detach()


def _reached(outputs: Tensor, module: nn.Module) -> list[str]:
    """The names of the module's own trained parameters that the outputs were computed from."""
    if not outputs.requires_grad:
        return []
    leaves = leaves_of(outputs)
    return [name for name, node in ends_of(module).items() if node in leaves]
