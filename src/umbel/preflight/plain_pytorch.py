"""Checks that models train and predict as in plain PyTorch, in a module built anew.

Two models are tried, one of them twice, so that what a pass leaves behind shows in another pass.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from umbel.checks import UsageError
from umbel.client.batches import Batch
from umbel.client.constants import checksum
from umbel.client.kernels.general import one_tensor
from umbel.client.kernels.modules import in_mode
from umbel.client.layout import tensors_of, unflatten
from umbel.client.net import Net
from umbel.client.seeding import drawing_from
from umbel.preflight.objective import values_of
from umbel.preflight.properties import close

CHANGE = 0.1
"""Every value of the other model differs from the first by up to this share."""

ROUNDING = 16
"""Two passes differ by no more than this many roundings of the largest value."""

LARGE = 1000
"""Some modules write only in large weights, as those that bound a norm do."""

DIFFERS = (
    "Net: the module's {} are not those that plain PyTorch computes with the same inputs, weights, "
    "buffers and seed. The usual causes: forward keeps state outside of buffers, such as a "
    "counter, a cache, weights prepared in train() or eval() (in loralib, merge_weights=False) or "
    "a generator of its own, which a resumed run and other processes do not share: keep numbers in "
    "buffers (register_buffer), and draw as torch.rand and nn.Dropout do; or __init__ keeps "
    "parameters or self in a list, dict, functools.partial, lambda or hook, which in copies of the "
    "module still refer to the module that was built: use nn.ParameterList, nn.ParameterDict and "
    "methods"
)


def check_writes(net: Net, theta: Tensor, x: Tensor) -> None:
    """Raise `UsageError` if a pass writes in x, in parameters or in shared tensors.

    Buffers that training moves must be changed in place.
    """
    module = _built(net, theta)
    tensors, scratch = tensors_of(module), net.modules.scratch
    moving = {entry.name for entry in net.layout.rest}
    trained = [entry.name for entry in net.layout.weights]

    def passed() -> list[str]:
        """The names of the tensors that a pass of each mode changes; "" for the inputs."""
        tried = {n: t for n, t in tensors.items() if n not in moving and n not in scratch}
        before, given = {n: checksum(t) for n, t in tried.items()}, x.clone()
        with torch.no_grad(), drawing_from(seed=0):
            in_mode(module, training=True)(given)
            after = tensors_of(module)
            in_mode(module, training=False)(given)
        replaced = [n for n in moving if after[n] is not tensors[n]]
        if replaced:
            name = replaced[0].rpartition(".")[2]
            raise UsageError(
                f"Net: training replaces the buffer {replaced[0]} by another tensor, which no "
                f"model would get: write into it, as by self.{name}.copy_(...) or "
                f"self.{name}.add_(...)"
            )
        inputs = [] if checksum(given) == checksum(x) else [""]
        return inputs + [n for n in tried if checksum(after[n]) != before[n]]

    changed = passed()
    with torch.no_grad():
        for name in trained:
            tensors[name].mul_(LARGE)
    with suppress(Exception):  # large values may be beyond bounds that the module has for them
        changed += [name for name in passed() if name in trained]
    if "" in changed:
        raise UsageError(
            "Net: a pass writes in its inputs, which other passes use: let forward compute with a "
            "copy, as by x - 0.5 in place of x.sub_(0.5), and leave inplace=True out of first "
            "layers"
        )
    for name in changed:
        if name in trained:
            raise UsageError(
                f"Net: a pass writes in the parameter {name}, as nn.Embedding(max_norm=...) does, "
                "and would change a model that others use: let forward compute with a copy, as by "
                "F.linear(x, self.weight.clamp(-1, 1)), and leave max_norm out"
            )
        if name in net.modules.frozen:
            raise UsageError(
                f"Net: training changes {name}, which is frozen: the forward pass must not write "
                "in what all models share"
            )
    if changed:
        raise UsageError(
            f"Net: training changes the buffer {changed[0]}, which is taken for a constant: if it "
            f"holds floating-point numbers write Net(..., moving={changed}), or moving = {changed} "
            "in the class of a network for experiments' files, so that each model has its own; "
            "counters can't be averaged: register them with persistent=False"
        )


class Pass(NamedTuple):
    """The results of a model for a mini-batch."""

    outputs: Tensor  # (B, ...) in evaluation
    gradient: Tensor  # (num_weights,) of the mean loss in training
    rest: Tensor  # (P - num_weights,) the buffers in theta after that pass in training


def check_against_plain(net: Net, theta: Tensor, batch: Batch, other: Batch) -> None:
    """Raise `UsageError` unless passes have the results of plain PyTorch, and the same again."""
    kernel = net.using("in-place")

    def passed(model: Tensor, batch: Batch) -> Pass:
        with drawing_from(seed=0):
            gradient, rest = kernel.gradient(model, _apart(batch))
        with torch.no_grad(), drawing_from(seed=0):
            return Pass(kernel.outputs(model, _apart(batch).x).detach(), gradient, rest)

    expected = _plainly(net, theta, batch)
    first, memory = passed(theta, batch), net.eps**0.5  # the same operations, but in other memory
    _compare(first, expected, memory)
    model = changed(net, theta)
    try:
        expected = _plainly(net, model, other)
    except Exception:  # forward may have bounds for its values, which training may respect
        pass
    else:
        _compare(passed(model, other), expected, memory)
    _compare(passed(theta, batch), first, ROUNDING * net.eps)


def _built(net: Net, theta: Tensor) -> nn.Module:
    """A new module with the values of theta (P,), in training mode."""
    module = in_mode(net.built(seed=0), training=True)
    _load(net, module, theta)
    return module


def _load(net: Net, module: nn.Module, theta: Tensor) -> None:
    tensors = tensors_of(module)
    with torch.no_grad():
        for name, values in net.layout.tensors(net.settled(theta)).items():
            tensors[name].copy_(values)


def _apart(batch: Batch) -> Batch:
    """A copy, as modules may call requires_grad_ of their inputs."""
    return Batch(batch.x.detach().clone(), batch.y.clone())


def _plainly(net: Net, theta: Tensor, batch: Batch) -> Pass:
    """Run a new module, first in training. Raises `UsageError` if it can't be trained."""
    module = _built(net, theta)
    tensors = tensors_of(module)
    scratch = {name: tensors[name].clone() for name in net.modules.scratch}
    weights = [tensors[entry.name] for entry in net.layout.weights]

    def trained() -> Tensor:
        with drawing_from(seed=0):
            outputs = one_tensor(module(_apart(batch).x))
            if not outputs.requires_grad:
                raise _nothing_trained("outputs depend", weights)
            return batch.mean(values_of(net.objective, "losses", outputs, batch.y))

    loss = trained()
    if not loss.requires_grad:
        raise UsageError(
            "objective.losses: the loss has no gradient, so that nothing would be trained: it "
            "must follow from the outputs by operations that can be differentiated"
        )
    slopes = torch.autograd.grad(loss, weights, allow_unused=True, retain_graph=True)
    if leaves := _leaves(loss) - _leaves(*weights):
        # Tensors made in forward that require gradients, such as inputs, differ from pass to pass.
        _load(net, module, theta)
        leaves &= _leaves(trained())
    for leaf in leaves:
        raise UsageError(
            "Net: forward or the objective uses a tensor of shape "
            f"{tuple(leaf.variable.shape)} that requires gradients and is no parameter of the "
            "module, so that it would never be trained: put layers in nn.ModuleList, and values "
            "in nn.Parameter or nn.ParameterList; call .requires_grad_(False) on what is to stay "
            "as it is"
        )
    if all(slope is None for slope in slopes):
        raise _nothing_trained("loss depends", weights)
    gradient = [
        torch.zeros_like(weight).flatten() if slope is None else slope.to_dense().flatten()
        for weight, slope in zip(weights, slopes, strict=True)
    ]
    rest = net.flatten(module)[net.layout.num_weights :]
    # An evaluation begins with the model's buffers, as in a run.
    _load(net, module, theta)
    for place, name in {**{name: name for name in scratch}, **net.modules.places}.items():
        if name in scratch:
            owner, _, leaf_name = place.rpartition(".")
            setattr(module.get_submodule(owner), leaf_name, scratch[name])
    with torch.no_grad(), drawing_from(seed=0):
        outputs = one_tensor(in_mode(module, training=False)(_apart(batch).x)).detach()
    return Pass(outputs, torch.cat(gradient), rest)


def _nothing_trained(what: str, trained: list[Tensor]) -> UsageError:
    return UsageError(
        f"Net: the {what} on none of the {len(trained)} trained parameters, so that nothing "
        "would be trained: let forward compute with them, outside torch.no_grad() and "
        "without .detach(), .data and .numpy()"
    )


def _leaves(*results: Tensor) -> set[Any]:
    """The nodes of a graph where gradients would be added up; `variable` is a node's tensor."""
    waiting = [get_gradient_edge(result).node for result in results]
    seen: set[Any] = set(waiting)
    while waiting:
        nodes = {other for other, _ in waiting.pop().next_functions if other is not None} - seen
        seen |= nodes
        waiting += nodes
    return {node for node in seen if hasattr(node, "variable")}


def _compare(found: Pass, expected: Pass, share: float) -> None:
    names = ("outputs", "gradients", "moving buffers")
    for name, one, other in zip(names, found, expected, strict=True):
        if not close(one, other, share):
            raise UsageError(DIFFERS.format(name))


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


def check_derived(net: Net, theta: Tensor, batch: Batch) -> None:
    """Raise `UsageError` if training stores values in a buffer that depend on weights alone.

    An exponential mean of weights is fine: the mean over models is that of their mean. But vectors
    of length 1 have no mean of length 1. What a parametrisation holds is found again for each model
    (`Net.settled`).
    """
    others = Batch(batch.x[:1].expand_as(batch.x), batch.y)
    if not net.layout.rest or torch.equal(batch.x, others.x):
        return

    def moved(model: Tensor, batch: Batch) -> dict[str, Tensor]:
        with drawing_from(seed=0):
            return unflatten(net.gradient(model, _apart(batch))[1], net.layout.rest)

    models = theta, changed(net, theta)
    middle = moved((models[0] + models[1]) / 2, batch)
    one, two = (moved(model, batch) for model in models)
    ones, twos = (moved(model, others) for model in models)
    for name in one:
        if any(name.startswith(f"{part}.") for part in net.modules.derived):
            continue
        alone = torch.equal(one[name], ones[name]) and torch.equal(two[name], twos[name])
        if alone and not close(middle[name], (one[name] + two[name]) / 2, 100 * net.eps):
            raise UsageError(
                f"Net: training computes the buffer {name} from the weights alone, and a mean of "
                "such buffers does not belong to the mean of the weights: let forward compute it "
                "in every pass, or do it in a parametrisation (torch.nn.utils.parametrize), whose "
                "buffers are found again for each model"
            )
