"""Networks whose backbones are not trained."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from umbel.networks import Model

PROCESS = "DEPLOYED_AS"
"""The variable of the environment that holds the name of a deployed process."""


class HalfBackbone(nn.Module):
    """A bfloat16 layer with a quantised table and an int8 parameter, under a float32 head."""

    def __init__(self) -> None:
        super().__init__()
        self.scales: Tensor
        self.backbone = nn.Linear(6, 8).bfloat16().requires_grad_(False)
        self.levels = nn.Parameter(torch.arange(-4, 4, dtype=torch.int8), requires_grad=False)
        self.register_buffer("scales", torch.full((8,), 0.5, dtype=torch.float16))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.backbone(x.bfloat16()).float() + self.levels * self.scales.float()
        out: Tensor = self.head(hidden.relu())
        return out


class Trunk(nn.Module):
    """Two layers and a head, all of which can be trained."""

    def __init__(self, inputs: int = 6, outputs: int = 3) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.trunk = nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.trunk(self.flatten(x)).relu())
        return out


@dataclass(frozen=True)
class Pretrained(Model):
    """A trunk from a file, and a new head."""

    file: str = ""  # {process} in it is the name of a deployed process

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        module = Trunk(int(torch.Size(input_shape).numel()), num_outputs)
        module.trunk.load_state_dict(load_file(self.file.format(process=os.environ.get(PROCESS))))
        module.trunk.requires_grad_(False)
        return module


def write_trunk(file: Path, inputs: int, seed: int = 0) -> Path:
    """A file of a trunk's values."""
    torch.manual_seed(seed)
    save_file(Trunk(inputs).trunk.state_dict(), file)
    return file
