"""Transformers over sequences of symbols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from umbel.checks import check, check_least
from umbel.networks.base import Model, check_symbols

SPREAD = 0.02
"""Standard deviation of initial embeddings, as in GPT (Radford et al. 2018, 4.1)."""


@dataclass(frozen=True)
class CharTransformer(Model):
    """A language model of symbols: blocks of causal attention, and a linear layer at each step.

    Inputs (B, L) are symbols numbered from 0 to below the number of outputs C; negative numbers are
    padding, on the right. Outputs (B, C, L) are the logits of the next symbol at each position. A
    position attends to itself and earlier positions only (Vaswani et al. 2017), so that padding
    does not change other positions. Layer normalisation comes first in each block (Xiong et al.
    2020), positions have embeddings that are learnt, and there is no dropout, so that clients can
    be batched.
    """

    width: int = 64  #: size of embeddings and of blocks' inputs
    heads: int = 4  #: number of attention heads in a block
    layers: int = 2  #: number of blocks
    hidden: int = 128  #: number of units between the two linear layers of a block

    def __post_init__(self) -> None:
        check_least(self, 1, "width", "heads", "layers", "hidden")
        expected = f"a divisor of the width, {self.width}"
        check(self.width % self.heads == 0, "heads", self.heads, expected)

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        length = check_symbols(input_shape)
        return _CharTransformer(num_outputs, length, self)


class _CharTransformer(nn.Module):
    def __init__(self, symbols: int, length: int, sizes: CharTransformer) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, sizes.width)
        self.positions = nn.Parameter(torch.empty(length, sizes.width))
        blocks = [_Block(sizes.width, sizes.heads, sizes.hidden) for _ in range(sizes.layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, symbols)
        for weight in (self.embedding.weight, self.positions):
            nn.init.normal_(weight, std=SPREAD)

    def forward(self, x: Tensor) -> Tensor:
        """Symbols (B, L), or fewer than L, -> logits (B, C, L)."""
        length = x.shape[1]
        states = self.embedding(x.clamp(min=0)) + self.positions[:length]
        hidden = causal_mask(length, x.device)
        for block in self.blocks:
            states = block(states, hidden)
        logits: Tensor = self.head(self.norm(states)).movedim(-1, 1)
        return logits


class _Block(nn.Module):
    """Attention, then two linear layers, each with normalised inputs and a residual connection."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.dense_norm = nn.LayerNorm(width)
        self.dense = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, states: Tensor, hidden: Tensor) -> Tensor:
        """States (B, L, width) -> states; `hidden` (L, L) bool marks positions not to attend to."""
        normed = self.attention_norm(states)
        found, _ = self.attention(normed, normed, normed, attn_mask=hidden, need_weights=False)
        states = states + found
        added: Tensor = states + self.dense(self.dense_norm(states))
        return added


def causal_mask(length: int, device: torch.device | str = "cpu") -> Tensor:
    """(length, length) bool: True where the column's position is later than the row's."""
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
