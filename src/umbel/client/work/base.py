"""`Work`: the computation of one client, and the form of its reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.batches import SLICE, Plan, Shard
from umbel.client.layout import Layout
from umbel.client.net import Net
from umbel.settings import Settings

SplitName: TypeAlias = Literal["train", "validation", "test"]
"""The split of a client's examples that a work uses."""


@dataclass(frozen=True)
class Promise:
    """The required form of one column of a reply."""

    shape: tuple[int, ...]  #: shape in the reply of one client
    #: type of the values; None: the floating-point type of the models, which are sent as `theta`,
    #: `models` or `moves`; without any, that of the first floating-point tensor sent
    dtype: torch.dtype | None = None
    low: float | None = None  #: smallest allowed value; None: bounded only by `Limits`
    high: float | None = None  #: largest allowed value; None: bounded only by `Limits`
    #: name of a column of counts: `low` and `high` are multiplied by its values
    per: str | None = None
    may_be_nan: bool = False  #: whether values may be NaN, for a number that does not exist
    total: float | None = None  #: required sum of all values; None: any sum


MEMORY = "memory"
"""The reserved name of values that a client remembers between rounds, such as its own model.

A work returns its memory in this column, and gets the client's last memory under the same name if
the method requests it. In one process, the table of all clients is in the method's state, so that
checkpoints save it. A deployed client keeps its row itself, so that it is not sent. The column is
checked like any other.
"""

DURING = "during"
"""The reserved name of the share (T,) of each step's examples that a client's work is to see.

Engines read it, and works do not. Without it all examples are seen.
"""

COUNT = Promise((), torch.int64, low=1)


@dataclass(frozen=True)
class Plans:
    """The `plan` of a `Batching` that makes the plans of clients of one size together."""

    of: Callable[[int, Sequence[int]], Plan]  #: number of examples, C seeds -> (C, S, batch size)

    def __call__(self, num_examples: int, seed: int) -> Plan:
        """The plan of one client."""
        one: Plan = self.of(num_examples, [seed])[0]
        return one


@dataclass(frozen=True)
class Batching:
    """How a client's examples are divided into the mini-batches of a work."""

    plan: Callable[[int, int], Plan]  #: number of examples, seed -> mini-batches
    #: whether the plan depends on the seed; otherwise clients of one size share it
    draws: bool = True
    #: number of examples -> the plan's shape, computed without the plan; None: not known
    shape: Callable[[int], tuple[int, int]] | None = None
    passes: int = 1  #: largest number of gradients on each mini-batch
    #: number of examples -> the fewest in a full mini-batch; None: as many as the plan is wide
    fewest: Callable[[int], int] | None = None

    def plans(self, num_examples: int, seeds: Sequence[int]) -> Sequence[Plan]:
        """The plans of clients with this many examples, in parts (c, S, batch size)."""
        if not self.draws:
            one = self.plan(num_examples, 0)
            return [np.broadcast_to(one, (len(seeds), *one.shape))]
        if isinstance(self.plan, Plans):
            return [self.plan.of(num_examples, seeds)]
        return [self.plan(num_examples, seed)[None] for seed in seeds]

    def size(self, num_examples: int) -> tuple[int, int]:
        """The number and the size of mini-batches of a client with this many examples."""
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
    """Memory needed for the work of one client; engines choose the size of chunks by it."""

    #: number of models that are evaluated side by side on all examples, slice by slice
    slices: int = 1
    batches: int = 0  #: number of models that are computed side by side on each mini-batch
    models: int = 1  #: number of models that are in memory side by side
    values: int = 0  #: further values in memory, as a number of examples

    def examples(self, num_examples: int, batch_width: int) -> int:
        """The number of examples times models in one pass of the module."""
        in_slices = self.slices * min(SLICE, num_examples)
        return max(in_slices, self.batches * batch_width, self.values)

    def __or__(self, other: Footprint) -> Footprint:
        """Combine the footprints of two works that are done one after the other."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Footprint(*(max(pair) for pair in pairs))


@dataclass(frozen=True)
class Cost:
    """The cost of a work: numbers of examples for gradients, and for losses without a gradient.

    An example counts once for each model and each pass. Kim et al. 2024, Table 6.
    """

    gradients: int = 0  #: number of gradients of single examples
    losses: int = 0  #: number of losses of single examples, without a gradient

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.gradients + other.gradients, self.losses + other.losses)

    def __mul__(self, times: int) -> Cost:
        return Cost(self.gradients * times, self.losses * times)


@dataclass(frozen=True)
class Work(Settings, ABC):
    """The computation of one client: a function of its examples, a seed, and the sent tensors.

    Extend it for work of your own, and pass it to `Context.request`. The fields of a work are its
    hyper-parameters. It has no access to other clients, the server or the engine, and must not
    branch on the values of tensors: engines run it for many clients at once, unless it is `alone`.
    """

    #: whether `inner` is called with all that the client is sent, and no other work trains in it
    relays: ClassVar[bool] = False

    #: name of the field with the work that this one contains, if any
    around: ClassVar[str] = ""

    @property
    def inner(self) -> Work | None:
        """The work that this one contains, if any; both use the same mini-batches."""
        return getattr(self, self.around) if self.around else None

    @property
    def split(self) -> SplitName:
        """The split of the examples that it uses; subclasses may replace it by a field."""
        return "train" if self.inner is None else self.inner.split

    @property
    def alone(self) -> bool:
        """Whether clients do it one after another, because it depends on the values of tensors."""
        return self.inner is not None and self.inner.alone

    @property
    def joins(self) -> bool:
        """Whether clients that are sent equal tensors can do it in one pass, by sums of a `Batch`.

        Columns of the reply then have the shape (C, ...) for C clients.
        """
        return False

    @property
    def batching(self) -> Batching:
        """The mini-batches; none for work on all examples at once."""
        return UNBATCHED if self.inner is None else self.inner.batching

    @abstractmethod
    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the reply of one client: a tensor for each column."""

    @abstractmethod
    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        """Return the form of the reply, given the shapes of the sent tensors."""

    def allows(self, setting: str, value: object) -> bool:
        """Return whether a method that declares this work in `sends` may send another value.

        By default a setting has the declared value in every round.
        """
        declared: object = getattr(self, setting)
        return declared == value

    def widths(self, layout: Layout) -> tuple[int, ...]:
        """Return the numbers of values that a sent model may have, given the net's layout."""
        return (layout.num_values,) if self.inner is None else self.inner.widths(layout)

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        """Return the needed memory, given the shapes of the sent tensors."""
        return Footprint() if self.inner is None else self.inner.footprint(sent)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        """Return the cost for a client with this many examples, given the shapes of sent tensors.

        It is counted in records; a work without this function costs nothing.
        """
        return Cost() if self.inner is None else self.inner.cost(num_examples, sent)


def innermost(work: Work) -> Work:
    """The work within all those that pass on what they are sent."""
    while work.relays and work.inner is not None:
        work = work.inner
    return work


def undeclared(asked: Work, declared: Iterable[Work]) -> str | None:
    """Why `asked` is none of the declared works, in words; None if it is one of them."""
    alike = (work for work in declared if type(work) is type(asked))
    nearest = min((_differences(work, asked) for work in alike), key=len, default=["not declared"])
    return nearest[0] if nearest else None


def _differences(declared: Work, asked: Work) -> list[str]:
    """The settings of `asked` that `declared`, of the same type, does not allow."""
    found = list[str]()
    for member in fields(declared):
        one, other = getattr(declared, member.name), getattr(asked, member.name)
        works = isinstance(one, Work) and isinstance(other, Work)
        if works and type(one) is type(other):
            found += [f"{member.name}.{each}" for each in _differences(one, other)]
        elif works:
            found.append(f"{member.name} is {type(other).__name__}, not {type(one).__name__}")
        elif not declared.allows(member.name, other):
            found.append(f"{member.name} = {other!r}, but it is {one!r}")
    return found


def promised(work: Work, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
    """What a work promises. Raises `UsageError` if it is anything but promises by name."""
    found: Any = work.promises(sent)
    named = isinstance(found, dict)
    for each in found.values() if named else [found]:
        right = named and isinstance(each, Promise) and isinstance(each.shape, tuple)
        expected = "a Promise for each column by its name, as in {'total': Promise(shape=())}"
        check(right, f"{type(work).__name__}.promises", each, expected)
    return dict(found)


def cost_of(work: Work, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
    """The cost of a work. Raises `UsageError` if it is no `Cost`."""
    found = work.cost(num_examples, sent)
    expected = "a Cost, such as Cost(gradients=num_examples)"
    check(isinstance(found, Cost), f"{type(work).__name__}.cost", found, expected)
    return found
