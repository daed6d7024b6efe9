"""The order of the values in theta."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from umbel.checks import UsageError, check
from umbel.summary import few

TRACKING = (_NormBase, _SpectralNorm)
"""Modules of torch that change their buffers in training: normalisation by statistics."""


HEAD, NORMS = "@head", "@norms"
"""Words in place of a pattern: the last layer that is trained, and all normalisation layers."""

NORMALISING = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
"""The normalisation layers of torch."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a module: its name and its shape."""

    name: str  #: as in `module.state_dict()`
    shape: torch.Size  #: shape of the tensor
    also: tuple[str, ...] = ()  #: its other names, if layers share it


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the tensors in theta: trained parameters first, then the rest."""

    weights: tuple[Entry, ...]  #: the trained parameters, in order
    rest: tuple[Entry, ...]  #: the buffers that training changes
    #: names of those that belong to normalisation layers
    norms: frozenset[str] = field(default=frozenset(), repr=False)

    @cached_property
    def num_weights(self) -> int:
        """The number of trained values, which are the first values of theta."""
        return sum(entry.shape.numel() for entry in self.weights)

    @cached_property
    def num_values(self) -> int:
        """P, the number of values in a model."""
        return self.num_weights + sum(entry.shape.numel() for entry in self.rest)

    @cached_property
    def variances(self) -> Tensor:
        """(V,) int64 positions in theta of running variances, which can't be negative."""
        found, begin = [torch.arange(0)], self.num_weights
        for entry in self.rest:
            end = begin + entry.shape.numel()
            if entry.name.rpartition(".")[2] == "running_var":
                found.append(torch.arange(begin, end))
            begin = end
        return torch.cat(found)

    @cached_property
    def head(self) -> tuple[Tensor, Tensor]:
        """Positions in theta of the last layer's weights (C, F), and of its biases (C, 1 or 0).

        Raises `UsageError` unless that layer is linear.
        """
        owner = self.weights[-1].name.rpartition(".")[0]
        shapes = [e.shape for e in self.weights if e.name.rpartition(".")[0] == owner]
        linear = len(shapes[0]) == 2 and all(shape == shapes[0][:1] for shape in shapes[1:])
        check(linear, "model", owner, "a linear layer, as the last one must be for its features")
        weights, biases = self.mask((HEAD,)).nonzero()[:, 0].tensor_split([shapes[0].numel()])
        return weights.view(shapes[0]), biases.view(len(weights) // shapes[0][1], -1)

    def tensors(self, theta: Tensor) -> dict[str, Tensor]:
        """Views of the tensors in theta (P,), by name, in the module's shapes."""
        return unflatten(theta, self.weights + self.rest)

    def mask(self, patterns: Sequence[str], field: str = "shared") -> Tensor:
        """(P,) bool: the values of tensors whose name matches a pattern such as `"trunk.*"`.

        The words `HEAD` and `NORMS` match layers. Raises `UsageError` for a pattern of this field
        that matches no name, and for `NORMS` if the network has no normalisation layer.
        """
        entries = self.weights + self.rest
        names = [name for e in entries for name in (e.name, *e.also)]
        last = self.weights[-1].name.rpartition(".")[0] if self.weights else ""
        words = {HEAD: {n for n in names if n.rpartition(".")[0] == last}, NORMS: self.norms}
        expected = "possible: the network has no normalisation layer"
        check(bool(self.norms) or NORMS not in patterns, field, NORMS, expected)
        hits = matching(names, [pattern for pattern in patterns if pattern not in words], field)
        hits.update(*(words[pattern] for pattern in patterns if pattern in words))
        sizes = torch.tensor([entry.shape.numel() for entry in entries])
        flags = torch.tensor([not hits.isdisjoint((e.name, *e.also)) for e in entries])
        return flags.repeat_interleave(sizes)


def spans_of(mask: Tensor) -> tuple[tuple[int, int], ...]:
    """The ranges of theta in which a mask (P,) is True."""
    edges = torch.cat([mask.new_zeros(1), mask, mask.new_zeros(1)]).int().diff().nonzero()[:, 0]
    begins, ends = edges[::2].tolist(), edges[1::2].tolist()
    return tuple(zip(begins, ends, strict=True))


def matching(
    names: Sequence[str], patterns: Sequence[str], field: str, kind: str = "parameters"
) -> set[str]:
    """The names that match any pattern. Raises `UsageError` for a pattern that matches none."""
    hits: set[str] = set()
    for pattern in patterns:
        matching = {name for name in names if fnmatchcase(name, pattern)}
        expected = f"a pattern for any of {few(names) or f'its {kind}: it has none'}"
        check(bool(matching), field, pattern, expected)
        hits |= matching
    return hits


def choose_trained(module: nn.Module, patterns: Sequence[str]) -> None:
    """Train the parameters of a module that match a pattern such as `"head.*"`, and no others.

    Raises `UsageError` for a pattern that matches no parameter, or one that can't be trained.
    """
    parameters = _by_any_name(module)
    hits = matching(list(parameters), patterns, "trained")
    chosen = {id(parameters[name]) for name in hits}
    for name, parameter in parameters.items():
        if name in hits and not parameter.is_floating_point():
            raise UsageError(f"trained: {name} holds {parameter.dtype}, which can't be trained")
        parameter.requires_grad_(id(parameter) in chosen)


def freeze(module: nn.Module, patterns: Sequence[str]) -> None:
    """Train none of the parameters that match a pattern such as `"trunk.*"`, and the others as now.

    Raises `UsageError` for a pattern that matches no parameter.
    """
    parameters = _by_any_name(module)
    for name in matching(list(parameters), patterns, "freeze"):
        parameters[name].requires_grad_(False)


def _by_any_name(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters by name; parameters that layers share appear under all their names."""
    return dict(module.named_parameters(remove_duplicate=False))


def unflatten(vector: Tensor, entries: Sequence[Entry]) -> dict[str, Tensor]:
    """Views of consecutive parts of a vector, by name."""
    parts = torch.split(vector, [entry.shape.numel() for entry in entries])
    return {e.name: part.view(e.shape) for e, part in zip(entries, parts, strict=True)}


def layout_of(module: nn.Module, moving: Sequence[str]) -> tuple[Layout, torch.dtype]:
    """The layout of a module's theta, and its type.

    theta holds the trained parameters, and the buffers that training changes: those of torch's
    normalisation layers, and those that match a pattern of `moving`. Raises `UsageError` if nothing
    is trained, if types are mixed, or if a pattern matches no buffer.
    """
    _check_layers(module)
    weights = {n: t for n, t in module.named_parameters() if t.requires_grad}
    if not weights:
        raise UsageError(f"Net: {type(module).__name__} has no parameter to train{_unseen(module)}")
    buffers = dict(module.named_buffers())
    rest = {name: buffers[name] for name in moved(module, moving)}
    dtypes = {tensor.dtype for tensor in [*weights.values(), *rest.values()]}
    if any(dtype.is_complex for dtype in dtypes):
        raise UsageError(
            "Net: complex numbers can't be trained: hold their real and imaginary parts in a real "
            "parameter, and let forward read it by torch.view_as_complex"
        )
    if len(dtypes) > 1 or not next(iter(dtypes)).is_floating_point:
        raise UsageError(
            f"Net: what is trained mixes {', '.join(sorted(map(str, dtypes)))}; "
            "cast it to one floating-point type, for example with module.float(); what is frozen "
            "may be of any type"
        )
    named: dict[int, list[str]] = {}
    for name, parameter in _by_any_name(module).items():
        named.setdefault(id(parameter), []).append(name)
    trained, held = (
        tuple(Entry(n, t.shape, tuple(named.get(id(t), [n])[1:])) for n, t in part.items())
        for part in (weights, rest)
    )
    norms = frozenset(
        f"{place}.{name}" if place else name
        for place, part in module.named_modules()
        if isinstance(part, NORMALISING)
        for name in tensors_of(part)
    )
    return Layout(trained, held, norms & {*weights, *rest}), dtypes.pop()


def _unseen(module: nn.Module) -> str:
    """What may be wrong with a module of whose values none is trained, as the end of a sentence."""
    if any(True for _ in module.parameters()):
        return ": all are frozen"
    return (
        ": layers in a list or dict are not seen by PyTorch, so put them in nn.ModuleList or "
        "nn.ModuleDict, and values in nn.Parameter"
    )


def _check_layers(module: nn.Module) -> None:
    if isinstance(module, torch.jit.ScriptModule):
        raise UsageError(
            "Net: build returned what torch.jit made, which can't be taken apart into its layers: "
            "return the module as it is, without torch.jit.script or torch.jit.trace"
        )
    for name, tensor in tensors_of(module).items():
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
            raise UsageError(
                f"Net: {name} has no size yet: give sizes in place of lazy layers, so that every "
                "model can be built without examples"
            )
        if tensor.is_meta:
            raise UsageError(
                f'Net: {name} has a shape but no values, as device="meta" leaves it: build the '
                "module on the CPU; engine.device says where it is computed"
            )
    _check_apart(module)
    for name, part in module.named_modules():
        # Without a GPU it only calls its module; but torch gives no root of its kind other values.
        calls = isinstance(part, nn.DataParallel) and part is not module and not part.device_ids
        if isinstance(part, nn.DataParallel | nn.parallel.DistributedDataParallel) and not calls:
            raise UsageError(
                f"Net: {name or 'build'} wraps a module in {type(part).__name__}: leave the module "
                "as it is; engine.workers spreads clients over processes"
            )
        if any(isinstance(hook, SpectralNorm) for hook in part._forward_pre_hooks.values()):
            raise UsageError(
                f"Net: {name or type(part).__name__} has torch.nn.utils.spectral_norm, whose "
                "vectors would be averaged apart from the weights that they belong to: use "
                "torch.nn.utils.parametrizations.spectral_norm"
            )
        if isinstance(part, _NormBase) and part.track_running_stats and part.momentum is None:
            raise UsageError(
                f"Net: {name or type(part).__name__}: momentum=None weighs statistics by a count "
                "of mini-batches, and counts are not averaged: give it a momentum, such as 0.1"
            )
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise UsageError(
                f"Net: {name} has a hook on its gradient, which models don't have: freeze "
                "parameters by trained=[...], and let forward or the objective do the rest"
            )


def _check_apart(module: nn.Module) -> None:
    """Raise `UsageError` if a trained parameter shares memory with another tensor."""
    spans = sorted(
        (*_span(tensor), name, tensor.requires_grad)
        for name, tensor in tensors_of(module).items()
        if type(tensor) in (Tensor, nn.Parameter) and tensor.numel()
    )
    reached: dict[bool, tuple[int, str]] = {}  # the farthest end so far, by whether it is trained
    for begin, end, name, trains in spans:
        for other in (True, False) if trains else (True,):  # two constants may share memory
            farthest, before = reached.get(other, (0, ""))
            if begin < farthest:
                raise UsageError(
                    f"Net: {before} and {name} share memory, which copies of the module would not: "
                    "to tie parameters, assign one itself, as in b.weight = a.weight; in place of "
                    "a view of a parameter, such as a.weight.t(), let forward make the view"
                )
        reached[trains] = max(reached.get(trains, (0, "")), (end, name))


def _span(tensor: Tensor) -> tuple[int, int]:
    """The memory addresses where a non-empty tensor begins and ends."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.itemsize


def moved(module: nn.Module, patterns: Sequence[str] = ()) -> list[str]:
    """The names of the buffers that training changes, in the module's order."""
    persistent = persistent_buffers(module)
    buffers = {name: b for name, b in module.named_buffers() if b.is_floating_point()}
    _check_moving(module, patterns)
    named = matching(list(buffers), patterns, "moving", "buffers of floating-point numbers")
    tracking = {
        f"{place}.{name}" if place else name
        for place, part in module.named_modules()
        if isinstance(part, TRACKING)
        for name, _ in part.named_buffers(recurse=False)
    }
    return [name for name in buffers if name in named or name in tracking & persistent]


def _check_moving(module: nn.Module, patterns: Sequence[str]) -> None:
    """Raise `UsageError` for a pattern that matches buffers, but none that can be averaged."""
    for pattern in patterns:
        kinds = {name: b.dtype for name, b in module.named_buffers() if fnmatchcase(name, pattern)}
        if kinds and not any(kind.is_floating_point for kind in kinds.values()):
            name, kind = next(iter(kinds.items()))
            raise UsageError(
                f"moving: {name} holds {kind}, and only floating-point numbers are averaged: "
                "leave it out, and register counters with persistent=False"
            )


def persistent_buffers(module: nn.Module) -> set[str]:
    """The names of the saved buffers, even if the module's own `state_dict` renames them."""
    return {
        f"{place}.{name}" if place else name
        for place, part in module.named_modules()
        for name, _ in part.named_buffers(recurse=False, remove_duplicate=False)
        if name not in part._non_persistent_buffers_set
    }


def further_places(module: nn.Module) -> dict[str, str]:
    """Further names of tensors that layers share -> their names in `tensors_of`.

    A layer that is used twice has only one name.
    """
    named: dict[int, str] = {}
    places: set[tuple[int, str]] = set()
    found: dict[str, str] = {}
    for name, tensor in chain(
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    ):
        owner, _, leaf = name.rpartition(".")
        place = id(module.get_submodule(owner)), leaf
        if place not in places and named.setdefault(id(tensor), name) != name:
            found[name] = named[id(tensor)]
        places.add(place)
    return found


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module by name."""
    return dict(chain(module.named_parameters(), module.named_buffers()))
