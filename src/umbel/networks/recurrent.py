"""Recurrent networks over sequences of symbols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from umbel.checks import check_least
from umbel.networks.base import Model, check_symbols


@dataclass(frozen=True)
class CharLSTM(Model):
    """A language model of symbols: an embedding, LSTM layers, and a linear layer at each step.

    Inputs (B, L) are symbols numbered from 0 to below the number of outputs C; negative numbers are
    padding, on the right. Outputs (B, C, L) are the logits of the next symbol at each position.
    They depend only on the symbols up to that position, so that padding does not change them.
    McMahan et al. 2017, 3, train such a network on characters, with an embedding of 8 and two
    layers of 256 units.
    """

    embedding: int = 16  #: size of a symbol's embedding
    hidden: int = 64  #: units of each LSTM layer
    layers: int = 1  #: number of LSTM layers

    def __post_init__(self) -> None:
        check_least(self, 1, "embedding", "hidden", "layers")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        check_symbols(input_shape)
        return _CharLSTM(num_outputs, self.embedding, self.hidden, self.layers)


class _CharLSTM(nn.Module):
    def __init__(self, symbols: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, embedding)
        self.recurrent = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, symbols)

    def forward(self, x: Tensor) -> Tensor:
        """Symbols (B, L) -> logits (B, C, L)."""
        states, _ = self.recurrent(self.embedding(x.clamp(min=0)))
        logits: Tensor = self.head(states).movedim(-1, 1)
        return logits
