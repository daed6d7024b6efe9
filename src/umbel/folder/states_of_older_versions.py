"""States that earlier versions wrote, turned into the present form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from umbel.algorithms.base import State
from umbel.server.gram_matrix import products_of


def as_now(kind: str, tensors: Mapping[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """The present kind and tensors of a state."""
    if kind == "IFCAState" and tensors["choices"].dim() > 1:
        return _ifca(kind, tensors)
    if kind in ("CFLGPState", "RestartsState"):
        return kind, _with_blocks(tensors)
    return kind, dict(tensors)


def is_idle(kind: str, tensors: Mapping[str, Tensor]) -> bool:
    """Whether this is the state of a wrapper without effect; such wrappers are no longer run."""
    if kind == "SharingState":
        return not tensors["kept"].numel()
    return kind == "RestartsState" and "rivals.1.models" not in tensors


def without_idle(values: Mapping[str, Any], template: State) -> Mapping[str, Any]:
    """The tensors of the only inner state, if the outer states are not of the template's class."""
    for place in ("rivals", "inner"):
        start = f"{place}.0."
        inside = {n.removeprefix(start): v for n, v in values.items() if n.startswith(start)}
        if inside and not hasattr(template, place):
            values = inside
    return values


def _with_blocks(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """CFL-GP held its features in one tensor (M, K, J), and no inner products of them."""
    now: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        # Those of rivals are "rivals.0.features", beside "rivals.0.anchors".
        prefix, _, field = name.rpartition("features")
        if field or tensor.dim() != 3 or f"{prefix}anchors" not in tensors:
            now[name] = tensor
            continue
        blocks = [block.contiguous() for block in tensor.unbind(1)]
        now |= {f"{name}.{place}": block for place, block in enumerate(blocks)}
        now[f"{prefix}products"] = products_of(blocks)
    return now


def _ifca(kind: str, tensors: Mapping[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """IFCA held a row a restart: choices (R, M), losses (R, M, K), and all models (R K, P)."""
    choices, losses = tensors["choices"], tensors["losses"]
    rivals = []
    for models, chosen, loss in zip(
        tensors["models"].chunk(len(choices)), choices, losses, strict=True
    ):
        labels = chosen.clamp(min=0)
        rivals.append({"models": models, "labels": labels, "choices": chosen, "losses": loss})
    if len(rivals) == 1:
        return kind, {**rivals[0], "labels": tensors["labels"]}
    named = {
        f"rivals.{number}.{name}": tensor
        for number, rival in enumerate(rivals)
        for name, tensor in rival.items()
    }
    return "RestartsState", {"models": tensors["models"], "labels": tensors["labels"], **named}
