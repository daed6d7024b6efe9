"""A federation's examples on one device, in the floating-point type of the model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.checks import check
from umbel.client.work import DURING, Work
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
    # the last request of each split with steps of time, and what `split` found for it
    latest: dict[str, tuple[tuple[Tensor, ...], Split]] = field(default_factory=dict)

    __repr__ = in_short

    def split(self, request: Request) -> Split:
        """Return the examples that a request is about. Raises `UsageError` if there are none."""
        whole = chosen(request.work, train=self.train, test=self.test, validation=self.validation)
        rows = request.each.get(DURING)
        if rows is None or whole.steps is None:
            return whole
        # Most requests are for the same clients and steps as the one before.
        asked = request.clients, rows.index, rows.table
        before, split = self.latest.get(request.work.split, ((), whole))
        if len(before) != len(asked) or not all(map(torch.equal, before, asked)):
            shares = rows.take(torch.arange(len(request.clients)))
            split = whole.during(request.clients.numpy(), shares.numpy())
            self.latest[request.work.split] = asked, split
        return split

    def by_size(self, request: Request) -> Tensor:
        """Positions in the request, clients with most examples first."""
        sizes = self.split(request).sizes[request.clients.numpy()]
        return torch.from_numpy(np.argsort(-sizes, kind="stable"))


def sizes_asked(split: Split, request: Request) -> NDArray[np.int64]:
    """(N,) number of examples of the split that each client asked is to see."""
    clients, rows = request.clients.numpy(), request.each.get(DURING)
    sizes: NDArray[np.int64] = split.sizes[clients]
    if rows is not None and split.steps is not None:
        shares = rows.take(torch.arange(len(clients))).numpy()
        sizes = split.counts(clients, shares).sum(axis=1)
    return sizes


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

    train, validation = moved(federation.train), federation.validation
    return Storage(
        train,
        train if federation.test is federation.train else moved(federation.test),
        None if validation is None else moved(validation),
    )
