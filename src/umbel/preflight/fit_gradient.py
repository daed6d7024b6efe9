"""Whether training reaches all trained parameters, found out by one step of plain PyTorch."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from umbel.checks import UsageError
from umbel.client.batches import Batch
from umbel.client.constants import twin
from umbel.client.kernels.general import one_tensor
from umbel.client.net import Net
from umbel.client.seeding import drawing_from
from umbel.preflight.objective import values_of


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
