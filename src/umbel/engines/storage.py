"""A federation's examples on one device, in the floating-point type of the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.work import Work
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.flow import Request
from umbel.summary import in_short

T = TypeVar("T")


@dataclass(frozen=True)
class Storage:
    """Training, test and validation examples where the work is done."""

    train: Split
    test: Split
    validation: Split | None = None

    __repr__ = in_short

    def split(self, work: Work) -> Split:
        """Return the split that a work uses. Raises `UsageError` if clients have no such split."""
        return chosen(work, train=self.train, test=self.test, validation=self.validation)

    def by_size(self, request: Request) -> Tensor:
        """Positions in the request, clients with most examples first."""
        sizes = self.split(request.work).sizes[request.clients.numpy()]
        return torch.from_numpy(np.argsort(-sizes, kind="stable"))


def chosen(work: Work, *, train: T, test: T, validation: T | None) -> T:
    """Select the value of the split that a work uses. Raises `UsageError` if there is none."""
    if work.split == "validation":
        expected = "available: clients have no such examples; set a validation_fraction"
        check(validation is not None, "examples", work.split, expected)
        assert validation is not None
        return validation
    return train if work.split == "train" else test


def store(federation: Federation, dtype: torch.dtype, device: torch.device) -> Storage:
    """Move and cast the examples once; tensors that fit already are not copied."""

    def cast(values: Tensor) -> Tensor:
        wanted = dtype if values.is_floating_point() else values.dtype
        return values.to(device, wanted).contiguous()

    def moved(split: Split) -> Split:
        return replace(split, x=cast(split.x), y=cast(split.y))

    validation = federation.validation
    return Storage(
        moved(federation.train),
        moved(federation.test),
        None if validation is None else moved(validation),
    )
