"""A linear layer with a low-rank adapter."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from umbel.checks import check

HALVES = (torch.float16, torch.bfloat16)
"""Half-precision types of frozen layers: their adapters are in single precision."""


class LoRA(nn.Module):
    """A frozen linear layer with a trained low-rank adapter: x -> base(x) + alpha/rank B A x.

    Hu et al., LoRA: Low-rank adaptation of large language models, ICLR 2022. The initial A (rank,
    in) is random, drawn like the weights of a linear layer, and the initial B (out, rank) is zero,
    so that the layer first has the same outputs as `linear`. In training, dropout is applied to the
    inputs of A.

    `linear` is kept as `base`, and its parameters are no longer trained. The names of the adapters,
    `lora_A` and `lora_B`, are those of the package `peft`. Raises `UsageError` for anything but an
    `nn.Linear`, a rank below 1, an alpha of 0 or below, and a dropout outside [0, 1).
    """

    def __init__(
        self, linear: nn.Linear, rank: int = 4, alpha: float = 8.0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check(isinstance(linear, nn.Linear), "linear", type(linear).__name__, "an nn.Linear")
        check(rank >= 1, "rank", rank, "1 or more")
        check(alpha > 0, "alpha", alpha, "more than 0")
        check(0 <= dropout < 1, "dropout", dropout, "in [0, 1)")
        self.base = linear.requires_grad_(False)
        self.scaling = alpha / rank
        weight = linear.weight
        kind = torch.float32 if weight.dtype in HALVES else weight.dtype
        self.lora_dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.lora_A = nn.Linear(linear.in_features, rank, False, weight.device, kind)
        self.lora_B = nn.Linear(rank, linear.out_features, False, weight.device, kind)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs (..., out) for inputs (..., in)."""
        outputs: Tensor = self.base(x)
        inside = self.lora_A(self.lora_dropout(x.to(self.lora_A.weight.dtype)))
        added: Tensor = self.lora_B(inside) * self.scaling
        return outputs + added.to(outputs.dtype)

    def extra_repr(self) -> str:
        return f"scaling={self.scaling:g}"
