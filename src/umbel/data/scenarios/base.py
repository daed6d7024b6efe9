"""The base class of scenarios, and checks of their settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_returned
from umbel.data.federation import Federation
from umbel.data.sources import Sources
from umbel.settings import Settings

Planned: TypeAlias = str | tuple[tuple[int, ...], ...]
"""A schedule of concepts: its name, a file, or a row of numbers for each step; "": none."""


@dataclass(frozen=True)
class Scenario(Settings, ABC):
    """A seeded recipe for a federation; to write your own scenario, extend it with `build`.

    It is a frozen dataclass whose fields are the keys under `[scenario]` in an experiment. Fields
    that `path_settings` names are paths: those of a TOML file are relative to its folder.
    """

    path_settings: ClassVar[frozenset[str]] = frozenset({"path", "tokenizer"})

    @abstractmethod
    def build(self, seed: int, sources: Sources) -> Federation:
        """Build the federation of this seed. Raises `UsageError` if that is not possible."""

    def over_time(
        self,
        seed: int,  # noqa: ARG002
        sources: Sources,  # noqa: ARG002
        steps: int | None,  # noqa: ARG002
        schedule: Planned,  # noqa: ARG002
    ) -> Federation:
        """Build the federation of this seed with steps of time.

        `steps` are those to train in, None for all that there are; `schedule` says the concept of
        each client in each step, if the scenario plants them. Raises `UsageError` if that is not
        possible, as in scenarios without time.
        """
        raise UsageError(f"time: scenario {type(self).__name__} has no steps; leave [time] out")

    def built_over_time(
        self, seed: int, sources: Sources, steps: int | None, schedule: Planned
    ) -> Federation:
        """Build the federation with steps. Raises `UsageError` also if they are not as asked."""
        apart = getattr(self, "validation_fraction", None)
        expected = "0 or left out with time: clients are judged on their examples of the next step"
        check(not apart, "validation_fraction", apart, expected)
        federation = self.over_time(seed, sources, steps, schedule)
        check_returned(self, federation, Federation, "a Federation")
        there = federation.num_steps
        fine = there is not None and steps in (None, there)
        check(fine, "steps", steps, f"at most the steps that there are, {there}")
        return federation

    def built(self, seed: int, sources: Sources) -> Federation:
        """Build the federation. Raises `UsageError` also if `build` returns no federation."""
        federation = self.build(seed, sources)
        check_returned(self, federation, Federation, "a Federation")
        return federation


def staying(concepts: NDArray[np.int64], steps: int | None) -> Planned:
    """The schedule of clients that keep these concepts (M,), for 10 steps unless it is told."""
    return (tuple(concepts.tolist()),) * ((10 if steps is None else steps) + 1)


def check_unplanned(schedule: Planned, why: str) -> None:
    """Raise `UsageError` for a schedule in a scenario that plants nothing."""
    check(not schedule, "schedule", schedule, f"left out: {why}")


def check_splits(split: str, test_split: str | None) -> None:
    """Raise `UsageError` if a split is used both for training and for testing."""
    both = set(split.split("+")) & set((test_split or "").split("+"))
    check(not both, "test_split", test_split, f"disjoint from split = {split!r}")


def check_clients(clients: int, count: int, what: str) -> None:
    """Raise `UsageError` unless there is a client for each of `count` groups, or the like."""
    check(clients >= count, "clients", clients, f"at least one for each of {count} {what}")


def check_apart(validation: float | None, test: float | None = None) -> None:
    """Raise `UsageError` unless these are fractions of a client's examples to be set apart.

    Without a fraction for validation nothing is; a fraction for the test must be above 0.
    """
    check(test is None or 0 < test < 1, "test_fraction", test, "in (0, 1)")
    fine = validation is None or 0 <= validation < 1
    check(fine, "validation_fraction", validation, "in [0, 1)")


def check_normalise(normalise: tuple[float, ...]) -> None:
    """Raise `UsageError` unless this is empty, or a mean and a standard deviation."""
    check(len(normalise) in (0, 2), "normalise", normalise, "() or (mean, std)")
    check(all(std > 0 for std in normalise[1:]), "normalise", normalise, "a pair with std above 0")


def check_examples(examples: tuple[int, ...]) -> None:
    """Raise `UsageError` unless this is a valid number or range of examples per client."""
    check(len(examples) <= 2, "examples", examples, "(), (n,) or (low, high)")
    check(sorted(examples) == list(examples), "examples", examples, "in the order (low, high)")
    check(all(n >= 1 for n in examples), "examples", examples, "numbers of 1 or more")
