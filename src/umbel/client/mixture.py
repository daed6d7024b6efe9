"""A mixture of several models as one module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from umbel.client.objectives import Objective


class Mixture(nn.Module):
    """Module whose outputs are the weighted mixture of the outputs of several models."""

    def __init__(self, models: Sequence[nn.Module], weights: Tensor, objective: Objective) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.weights: Tensor
        self.register_buffer("weights", weights)
        self._mixed = objective.mixed

    def forward(self, x: Tensor) -> Tensor:
        """Return mixed outputs (B, ...), in the shape of one model's outputs."""
        return self._mixed(torch.stack([model(x) for model in self.models]), self.weights)
