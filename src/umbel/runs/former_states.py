"""States as earlier versions wrote them, as they are now."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def as_now(kind: str, tensors: Mapping[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """The present kind and tensors of a state.

    IFCA held a row a restart, choices (R, M) and losses (R, M, K), and all their models (R K, P).
    """
    if kind != "IFCAState" or tensors["choices"].dim() == 1:
        return kind, dict(tensors)
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
