"""States that earlier versions wrote, turned into the present form."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from umbel.server.kept_products import products_of


def as_now(kind: str, tensors: Mapping[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """The present kind and tensors of a state."""
    if kind == "IFCAState" and tensors["choices"].dim() > 1:
        return _ifca(kind, tensors)
    if kind in ("CFLGPState", "RestartsState"):
        return kind, _with_blocks(tensors)
    return kind, dict(tensors)


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
