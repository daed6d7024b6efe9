"""A run of own data and an own module, which tests save."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import umbel
from tests.federations import blobs
from umbel import FLACC, LocalTraining, Run

LOCAL = LocalTraining(epochs=1, batch_size=8)


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


class Masked(nn.Module):
    """Two inputs in three are left out, by a constant."""

    def __init__(self, kept: int) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.mask: Tensor
        self.register_buffer("mask", (torch.arange(6) % 3 == kept).int(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * self.mask)  # type: ignore[no-any-return]


def binary() -> umbel.Federation:
    clients = [blobs().train.of(client) for client in range(6)]
    return umbel.Federation.from_arrays([(x, (y > 0).long()) for x, y in clients])


def make_run(**changes: Any) -> Run:
    run = Run(FLACC(LOCAL, n_sep=2), blobs(), umbel.Net(build), participation=0.75)
    return replace(run, **changes)
