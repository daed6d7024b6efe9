"""Whether outputs are those of the given model, repeat, and train all of its parameters.

Found out by another model than the first, by several passes, and by one step of plain PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from umbel.checks import UsageError
from umbel.client.batches import Batch
from umbel.client.constants import copied, twin
from umbel.client.kernels.general import General, one_tensor
from umbel.client.kernels.modules import in_mode
from umbel.client.layout import tensors_of
from umbel.client.net import Net
from umbel.client.seeding import drawing_from
from umbel.preflight.objective import values_of

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


def check_gradient(net: Net, batch: Batch) -> None:
    """Check a step of plain PyTorch, as most kernels do not use its graph. Raises `UsageError`."""
    module = twin(net.modules.training, net.layout)
    trained = [p for p in module.parameters() if p.requires_grad]
    outputs, loss = _passed(net, module, batch)
    if not outputs.requires_grad:
        raise _nothing_trained("outputs depend", trained)
    if not loss.requires_grad:
        raise UsageError(
            "objective.losses: the loss has no gradient, so that nothing would be trained: it "
            "must follow from the outputs by operations that can be differentiated"
        )
    if others := _others(loss, module):
        # Tensors made in forward that require gradients, such as inputs, differ from pass to pass.
        again = _others(_passed(net, module, batch)[1], module)
        _refuse([leaf for leaf in others if leaf in again], net.modules.training)
    gradients = torch.autograd.grad(loss, trained, allow_unused=True)
    if all(gradient is None for gradient in gradients):
        raise _nothing_trained("loss depends", trained)


def _passed(net: Net, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """The outputs (B, ...) and the mean loss (), for inputs that the module may do anything to."""
    with drawing_from(seed=0):
        outputs = one_tensor(module(batch.x.detach().clone()))
        return outputs, batch.mean(values_of(net.objective, "losses", outputs, batch.y))


def _nothing_trained(what: str, trained: list[nn.Parameter]) -> UsageError:
    return UsageError(
        f"Net: the {what} on none of the {len(trained)} trained parameters, so that nothing "
        "would be trained: let forward compute with them, outside torch.no_grad() and "
        "without .detach(), .data and .numpy()"
    )


def _refuse(leaves: list[Any], original: nn.Module) -> None:
    """Refuse tensors outside the model that require gradients: they would never be trained."""
    if not leaves:
        return
    named = {node: name for name, node in ends_of(original).items()}
    if leaves[0] in named:
        raise UsageError(
            f"Net: forward uses {named[leaves[0]]} of the module that was built, whose copies "
            "train: a lambda or function made in __init__ holds on to self; make it a method"
        )
    raise UsageError(
        "Net: forward or the objective uses a tensor of shape "
        f"{tuple(leaves[0].variable.shape)} that requires gradients and is no parameter of the "
        "module, so that it would never be trained: put layers in nn.ModuleList, and values in "
        "nn.Parameter or nn.ParameterList; call .requires_grad_(False) on what is to stay as it is"
    )


def _others(loss: Tensor, module: nn.Module) -> list[Any]:
    """Where gradients of a loss would be added up, but for the parameters of the module."""
    return leaves_of(loss, set(ends_of(module).values()))


def leaves_of(result: Tensor, apart: Set[Any] = frozenset()) -> list[Any]:
    """Where gradients of a result would be added up, but for these nodes.

    These are nodes of its graph, each with the tensor that it stands for, `variable`.
    """
    waiting: list[Any] = [result.grad_fn]
    seen, found = {*waiting, *apart}, []
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            found.append(node)
        nodes = {other for other, _ in node.next_functions if other is not None} - seen
        seen |= nodes
        waiting += nodes
    return found


def ends_of(module: nn.Module) -> dict[str, Any]:
    """The node of each trained parameter."""
    named = module.named_parameters()
    return {name: get_gradient_edge(p).node for name, p in named if p.requires_grad}
