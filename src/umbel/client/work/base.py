"""What one client computes: `Work`, and what its reply must look like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from umbel.client.batches import SLICE, Plan, Shard
from umbel.client.net import Net
from umbel.settings import Settings


@dataclass(frozen=True)
class Promise:
    """What one column of a reply must look like to be accepted."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None = None  # None: the floating-point type of the models
    low: float | None = None
    high: float | None = None


MEMORY = "memory"
"""The reserved name of what a client keeps between rounds: its own weights, its own model.

A work returns it in this column, and is sent the client's last one under the same name if the
method asks so. In one process the table of all clients is in the method's state, where checkpoints
find it; a deployed client keeps its row, so that it is no traffic. It is checked like any column.
"""

COUNT = Promise((), torch.int64, low=1)


@dataclass(frozen=True)
class Work(Settings, ABC):
    """A pure function of one client's examples, a seed, and the tensors the client was sent.

    The fields of a work are its hyper-parameters. It knows no other client, no server and no
    engine, and must not branch on the values of tensors: engines run it for many clients at once.
    """

    split: ClassVar[Literal["train", "test"]] = "train"

    def plan(self, num_examples: int, seed: int) -> Plan:  # noqa: ARG002
        """Choose the mini-batches; work on all examples at once needs none."""
        return np.zeros((0, 1), dtype=np.int64)

    @property
    def draws(self) -> bool:
        """Whether `plan` depends on the seed; if not, clients of one size share a plan."""
        return type(self).plan is not Work.plan

    @abstractmethod
    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the reply, a tensor per column."""

    @abstractmethod
    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        """What the reply will look like, given the shapes of what is sent."""

    def pass_size(
        self,
        sent: Mapping[str, torch.Size],  # noqa: ARG002
        num_examples: int,
        batch_width: int,  # noqa: ARG002
    ) -> int:
        """How many examples, times models, go through the module at once: it sizes chunks."""
        return min(SLICE, num_examples)

    def num_models(self, sent: Mapping[str, torch.Size]) -> int:  # noqa: ARG002
        """How many models a client works on side by side: it sizes chunks, too."""
        return 1
