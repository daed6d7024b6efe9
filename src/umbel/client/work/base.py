"""`Work`: what one client computes, and the form of its reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from umbel.client.batches import SLICE, Plan, Shard
from umbel.client.layout import Layout
from umbel.client.net import Net
from umbel.settings import Settings

SplitName: TypeAlias = Literal["train", "validation", "test"]
"""The split of a client's examples that a work uses."""


@dataclass(frozen=True)
class Promise:
    """The form that one column of a reply must have."""

    shape: tuple[int, ...]  #: of one client's reply
    dtype: torch.dtype | None = None  #: None: the floating-point type of the models
    low: float | None = None  #: smallest value; None: no bound but `Limits`
    high: float | None = None  #: largest value, likewise
    per: str | None = None  #: a column of counts: `low` and `high` are for each that it counts
    may_be_nan: bool = False  #: NaN says that there is no such number
    total: float | None = None  #: what all values sum to; None: anything


MEMORY = "memory"
"""The reserved name of what a client keeps between rounds: its own weights, its own model.

A work returns it in this column, and is sent the client's last one under the same name if the
method asks so. In one process the table of all clients is in the method's state, where checkpoints
find it; a deployed client keeps its row, so that it is no traffic. It is checked like any column.
"""

COUNT = Promise((), torch.int64, low=1)


@dataclass(frozen=True)
class Batching:
    """How a client's examples are dealt into the mini-batches of a work."""

    plan: Callable[[int, int], Plan]  #: number of examples, seed -> mini-batches
    draws: bool = True  #: whether the plan depends on the seed; else clients of one size share it
    #: number of examples -> the plan's shape, found without making it; None: not known
    shape: Callable[[int], tuple[int, int]] | None = None
    passes: int = 1  #: gradients that are taken on each mini-batch, at most

    def size(self, num_examples: int) -> tuple[int, int]:
        """How many mini-batches a client of so many examples has, and how large they are."""
        if self.shape is not None:
            return self.shape(num_examples)
        steps, width = self.plan(num_examples, 0).shape
        return steps, width


UNBATCHED = Batching(
    lambda num_examples, seed: np.zeros((0, 1), dtype=np.int64),  # noqa: ARG005
    draws=False,
    shape=lambda num_examples: (0, 1),  # noqa: ARG005
)


@dataclass(frozen=True)
class Footprint:
    """Memory that the work of one client needs; engines use it to size chunks of clients."""

    slices: int = 1  #: models that all examples go through, slice by slice
    batches: int = 0  #: models that each mini-batch goes through
    models: int = 1  #: models that are trained or compared side by side
    values: int = 0  #: numbers that are held besides, in examples

    def examples(self, num_examples: int, batch_width: int) -> int:
        """How many examples, times models, go through the module at once."""
        in_slices = self.slices * min(SLICE, num_examples)
        return max(in_slices, self.batches * batch_width, self.values)

    def __or__(self, other: Footprint) -> Footprint:
        """Combine two works that are done one after the other."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Footprint(*(max(pair) for pair in pairs))


@dataclass(frozen=True)
class Cost:
    """The cost of a work: numbers of examples for gradients, and for losses without a gradient.

    An example counts once for each model, and each time. Kim et al. 2024, Table 6.
    """

    gradients: int = 0  #: of single examples
    losses: int = 0  #: of single examples, without a gradient

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.gradients + other.gradients, self.losses + other.losses)

    def __mul__(self, times: int) -> Cost:
        return Cost(self.gradients * times, self.losses * times)


@dataclass(frozen=True)
class Work(Settings, ABC):
    """What one client computes: a function of its examples, a seed, and the tensors it was sent.

    Extend it for work of your own, and give it to `Context.request`. The fields of a work are its
    hyper-parameters. It knows no other client, no server and no engine, and must not branch on the
    values of tensors: engines run it for many clients at once, unless it says that it is `alone`.
    """

    @property
    def inner(self) -> Work | None:
        """The work that this one does besides, if any: both are about the same mini-batches."""
        return None

    @property
    def split(self) -> SplitName:
        """Which examples this is about: a field or an attribute of another work may say others."""
        return "train" if self.inner is None else self.inner.split

    @property
    def alone(self) -> bool:
        """Whether clients do this one after another, as it looks at the values of tensors."""
        return self.inner is not None and self.inner.alone

    @property
    def batching(self) -> Batching:
        """The mini-batches; work on all examples at once plans none."""
        return UNBATCHED if self.inner is None else self.inner.batching

    @abstractmethod
    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the reply of one client: a tensor for each column."""

    @abstractmethod
    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        """Return the form of the reply, given the shapes of what is sent."""

    def widths(self, layout: Layout) -> tuple[int, ...]:
        """Return how many values each model that is sent may have, given the net's layout."""
        return (layout.num_values,)

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        """Return the memory needed, given the shapes of what is sent."""
        return Footprint() if self.inner is None else self.inner.footprint(sent)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        """Return what it costs a client of so many examples, given the shapes of what is sent.

        Records count it; a work that does not say costs nothing.
        """
        return Cost() if self.inner is None else self.inner.cost(num_examples, sent)
