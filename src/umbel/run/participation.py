"""Which clients a round asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from umbel.checks import UsageError, check, nearest
from umbel.data.attributes import picked
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.seeds import Stream, generator
from umbel.settings import Settings
from umbel.summary import settings


@dataclass(frozen=True, kw_only=True)
class Participation(Settings, ABC):
    """Which clients a round asks: a value of `participation`, in place of a share.

    Your own is a frozen dataclass with `cohort`. Clients must depend on the settings and on what
    `cohort` is given alone, so that a resumed run asks the same ones.
    """

    fixed_size: ClassVar[bool] = False  #: whether all rounds ask the share of all clients

    share: float = 1.0  #: share of the clients that can be asked, in (0, 1]

    def __post_init__(self) -> None:
        check(0 < self.share <= 1, "share", self.share, "in (0, 1]")

    def __format__(self, _: str) -> str:
        return settings(self)  # where a share is formatted as a number

    @abstractmethod
    def cohort(self, number: int, federation: Federation, rng: np.random.Generator) -> ArrayLike:
        """Return the positions in the federation of the clients of a round, counted from 0."""

    def size(self, count: int) -> int:
        """The number of clients that are asked if so many can be: one at least."""
        return max(1, round(self.share * count))


@dataclass(frozen=True, kw_only=True)
class Uniform(Participation):
    """All clients are drawn with the same probability, as with a number for `participation`."""

    fixed_size: ClassVar[bool] = True

    def cohort(self, number: int, federation: Federation, rng: np.random.Generator) -> ArrayLike:  # noqa: ARG002
        count = federation.num_clients
        return rng.choice(count, self.size(count), replace=False)


@dataclass(frozen=True, kw_only=True)
class Weighted(Participation):
    """Clients are drawn one after another, with probabilities in proportion to weights.

    >>> umbel.Weighted(share=0.1).share
    0.1

    A client is drawn once at most in a round. Averages of updates keep weights of their own.
    """

    fixed_size: ClassVar[bool] = True

    #: weight of each client, in the order of the federation; (): its number of training examples
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        lowest = min(self.weights, default=0)
        check(lowest >= 0, "weights", lowest, "0 or more")

    def cohort(self, number: int, federation: Federation, rng: np.random.Generator) -> ArrayLike:  # noqa: ARG002
        count, weights = federation.num_clients, np.asarray(self.weights, dtype=np.float64)
        if not self.weights:
            weights = federation.train.sizes.astype(np.float64)
        expected = f"a number for each of the {count} clients"
        check(len(weights) == count, "participation.weights", f"{len(weights)} numbers", expected)
        able, size = int((weights > 0).sum()), self.size(count)
        expected = f"{size} or more above 0, as a round asks so many clients"
        check(able >= size, "participation.weights", f"{able} above 0", expected)
        return rng.choice(count, size, replace=False, p=weights / weights.sum())


@dataclass(frozen=True, kw_only=True)
class Available(Participation):
    """Only some clients can be asked in a round, such as devices that charge at night.

    >>> umbel.Available(rounds=[["a", "b"], ["c"]], share=0.5).rounds
    (('a', 'b'), ('c',))
    """

    #: names of the clients that can be asked in each round; after the last list, the first follows
    rounds: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        fine = bool(self.rounds) and all(self.rounds)
        check(fine, "rounds", self.rounds, "a list of clients for each round, none of them empty")

    def cohort(self, number: int, federation: Federation, rng: np.random.Generator) -> ArrayLike:
        turn = number % len(self.rounds)
        places = {name: place for place, name in enumerate(federation.names)}
        unknown = [name for name in self.rounds[turn] if name not in places]
        if unknown:
            hint = nearest(unknown[0], places)
            raise UsageError(f"participation.rounds[{turn}]: no client {unknown[0]!r}; {hint}")
        here = sorted({places[name] for name in self.rounds[turn]})
        return rng.choice(here, self.size(len(here)), replace=False)


PARTICIPATIONS: dict[str, type[Participation]] = {
    "uniform": Uniform,
    "weighted": Weighted,
    "available": Available,
}


def as_participation(value: float | Participation) -> Participation:
    """The value, or the uniform one of a share."""
    return value if isinstance(value, Participation) else Uniform(share=value)


def smallest_share(value: float | Participation) -> float:
    """The share of the clients that every round asks; 0 if it can be any."""
    taking_part = as_participation(value)
    return taking_part.share if taking_part.fixed_size else 0.0


def cohort_of(
    value: float | Participation,
    number: int,
    federation: Federation,
    seed: int,
    sizes: NDArray[np.int64] | None = None,
    here: NDArray[np.int64] | None = None,
) -> Tensor:
    """Return the clients (N,) of a round in increasing order. Raises `UsageError` for others.

    With `sizes` (M,), the numbers of training examples in this round, clients without any are not
    there. With `here` (L,), only these clients are, and the result are positions among them.
    """
    if sizes is not None or here is not None:
        there = np.arange(federation.num_clients) if here is None else here
        sizes = federation.train.sizes if sizes is None else sizes
        able = np.flatnonzero(sizes[there])
        if not able.size:
            return torch.from_numpy(able)
        federation, here = _present(federation, there[able], sizes), able
    taking_part, count = as_participation(value), federation.num_clients
    # Drawn from the seed and the round alone: all methods see the same cohorts, resumed or not.
    found = taking_part.cohort(number, federation, generator(seed, Stream.COHORT, number))
    cohort = np.sort(np.asarray(found))
    fine = cohort.ndim == 1 and cohort.size > 0 and np.issubdtype(cohort.dtype, np.integer)
    fine = fine and cohort[0] >= 0 and cohort[-1] < count and bool((np.diff(cohort) > 0).all())
    name = f"participation: what {type(taking_part).__name__} returns for round {number}"
    check(fine, name, str(found), f"positions of clients, 0 to {count - 1}, one or more, each once")
    cohort = cohort.astype(np.int64)
    return torch.from_numpy(cohort if here is None else here[cohort])


def _present(
    federation: Federation, here: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Federation:
    """Return a federation of these clients, with numbers of examples but without the examples."""
    train, offsets = federation.train, np.concatenate([[0], sizes[here].cumsum()])
    split = Split(train.x[:0], train.y[:0], offsets)
    return Federation(
        split,
        split,
        names=tuple(federation.names[client] for client in here),
        num_classes=federation.num_classes,
        attributes=picked(federation.attributes, here),
    )
