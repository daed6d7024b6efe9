"""Operations that `vmap` applies to a whole stack of models at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor
from torch.autograd import Function
from torch.func import vjp, vmap

Computed: TypeAlias = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class Stacked:
    """One operation in two implementations.

    `fast` takes and returns tensors (C, ...), models first; a tensor that all models share may have
    C = 1. `general` does the same for one model, without the dimension C, by differentiable
    operations.
    """

    fast: Computed
    general: Computed
    by_example: bool = False  # whether all but the models are independent examples (C, B, ...)

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Apply to one model; `vmap`, at any depth, calls `fast` once for the whole stack."""
        results = _Applied.apply(self, *(tensor[None] for tensor in tensors))  # type: ignore[no-untyped-call]
        return tuple(tensor[0] for tensor in results)


class _Applied(Function):
    @staticmethod
    def forward(operation: Stacked, *tensors: Tensor) -> tuple[Tensor, ...]:
        return operation.fast(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        ctx.general = inputs[0].general
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        return None, *_slopes(ctx.general, ctx.saved_tensors, slopes)

    @staticmethod
    def vmap(info: Any, in_dims: Any, operation: Stacked, *given: Tensor) -> Any:
        alone = [dim is None for dim in in_dims[1:]]
        tensors = [
            tensor if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(given, in_dims[1:], strict=True)
        ]
        copies, models = info.batch_size, len(given[0])
        wide = operation.by_example and alone[0] and models > 1
        if wide and all(one or len(t[0]) == 1 for one, t in zip(alone, tensors, strict=True)):
            # The same models for all: more examples for each, instead of copies of the models.
            examples = [
                (t.expand(copies, *t.shape) if one else t).flatten(0, 2)[None]
                for one, t in zip(alone[1:], tensors[1:], strict=True)
            ]
            results = _Applied.apply(operation, tensors[0], *examples)  # type: ignore[no-untyped-call]
            return tuple(t.unflatten(1, (copies, -1)) for t in results), tuple(1 for _ in results)
        height = max(t.shape[0 if one else 1] for t, one in zip(tensors, alone, strict=True))
        folded = [
            _folded(tensor, one, copies, height) for tensor, one in zip(tensors, alone, strict=True)
        ]
        results = _Applied.apply(operation, *folded)  # type: ignore[no-untyped-call]
        return tuple(t.unflatten(0, (copies, -1)) for t in results), tuple(0 for _ in results)


def _folded(tensor: Tensor, alone: bool, copies: int, height: int) -> Tensor:
    """Merge the dimensions of a stack of stacks; tensors that all share keep size 1."""
    if alone and len(tensor) == 1:
        return tensor
    if alone:
        tensor = tensor.expand(copies, *tensor.shape)
    return tensor.expand(copies, height, *tensor.shape[2:]).flatten(0, 1)


def _slopes(
    general: Computed, tensors: Sequence[Tensor], slopes: tuple[Tensor, ...]
) -> list[Tensor | None]:
    """Return the slopes by the floating-point tensors, from the slopes by the results."""
    height = max(len(tensor) for tensor in tensors)
    smooth = [tensor.is_floating_point() for tensor in tensors]

    def of_smooth(*floats: Tensor) -> tuple[Tensor, ...]:
        given = iter(floats)
        every = [next(given) if s else t for s, t in zip(smooth, tensors, strict=True)]
        stacks = [tensor.expand(height, *tensor.shape[1:]) for tensor in every]
        results: tuple[Tensor, ...] = vmap(general)(*stacks)
        return results

    _, back, *_ = vjp(of_smooth, *(t for t, s in zip(tensors, smooth, strict=True) if s))
    by_smooth = iter(back(slopes))
    return [next(by_smooth) if s else None for s in smooth]
