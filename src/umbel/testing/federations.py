"""Small federations with planted groups, and networks that fit them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.networks import LoRA

SIZES = (12, 7, 16, 9, 13, 20, 8, 11)


def blobs(
    sizes: Sequence[int] = SIZES,
    num_groups: int = 2,
    seed: int = 0,
    shape: tuple[int, ...] = (6,),
    num_classes: int = 3,
) -> Federation:
    """Make a small federation: `sizes` training examples of each client, and 8 test examples.

    Inputs are Gaussian, one blob for each class. Each planted group uses different labels for the
    same classes, and clients are assigned to the groups in turn.
    """
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=2, size=(num_classes, *shape))
    train, test, groups = [], [], []
    for client, size in enumerate(sizes):
        group = client % num_groups
        y = rng.integers(0, num_classes, size + 8)
        x = (centres[y] + rng.normal(size=(size + 8, *shape))).astype(np.float32)
        y = (y + group) % num_classes
        train.append((x[:size], y[:size]))
        test.append((x[size:], y[size:]))
        groups.append(group)
    return Federation.from_arrays(train, test, groups=groups, num_classes=num_classes)


def mlp(num_inputs: int = 6, num_outputs: int = 3, dtype: torch.dtype = torch.float32) -> Net:
    """Make a small fully connected network with one hidden layer, which fits `blobs`."""
    return Net(
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(num_inputs, 8), nn.ReLU(), nn.Linear(8, num_outputs)
        ).to(dtype)
    )


def adapted_mlp(dtype: torch.dtype = torch.float32) -> Net:
    """Make a small network with low-rank adapters and a head, which fits `blobs`."""

    def build() -> nn.Module:
        first, second = (LoRA(nn.Linear(size, 8), rank=2) for size in (6, 8))
        layers = (nn.Flatten(), first, nn.Tanh(), second, nn.Tanh(), nn.Linear(8, 3))
        return nn.Sequential(*layers).to(dtype)

    return Net(build)
