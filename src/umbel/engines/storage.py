"""A federation's examples on one device, in the floating-point type of the model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from umbel.client.work import Work
from umbel.data.federation import Federation, Split
from umbel.flow import Request
from umbel.summary import in_short


@dataclass(frozen=True)
class Storage:
    """Training and test examples where the work is done."""

    train: Split
    test: Split

    __repr__ = in_short

    def split(self, work: Work) -> Split:
        """The examples that this work is about."""
        return self.train if work.split == "train" else self.test

    def by_size(self, request: Request) -> Tensor:
        """Positions in the request, clients with most examples first."""
        sizes = self.split(request.work).sizes[request.clients.numpy()]
        return torch.from_numpy(np.argsort(-sizes, kind="stable"))


def store(federation: Federation, dtype: torch.dtype, device: torch.device) -> Storage:
    """Move and cast the examples once; what needs no change is not copied."""

    def cast(values: Tensor) -> Tensor:
        wanted = dtype if values.is_floating_point() else values.dtype
        return values.to(device, wanted).contiguous()

    def moved(split: Split) -> Split:
        return replace(split, x=cast(split.x), y=cast(split.y))

    return Storage(moved(federation.train), moved(federation.test))
