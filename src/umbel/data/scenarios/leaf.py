"""Clients that are the users in files of LEAF, with LEAF's own training and test examples."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_least
from umbel.data.federation import Federation
from umbel.data.leaf import LETTERS, leaf_files, read_users
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.data.tables.features import hashed_texts
from umbel.data.tables.parts import check_fractions
from umbel.seeds import Stream, generator
from umbel.summary import few

log = logging.getLogger(__name__)

TEXT = 4
"""The place of the text in an example of Sent140: id, date, query, user, text."""


@dataclass(frozen=True)
class LeafUsers(Scenario):
    """The users in LEAF's JSON files: FEMNIST, Shakespeare, Sent140, synthetic and their like.

    LEAF's division into `train` and `test` is kept; without files for the test, a random
    `test_fraction` of each user's examples is set apart. Texts of which the next character is
    wanted, as in Shakespeare, become LEAF's numbers of their characters, for an embedding of 80.
    Tweets become counts of hashed words. Numbers stay as they are.
    """

    path: str = "leaf"  # the folder with train/*.json and test/*.json, or with all in one
    source: str | None = None  # instead of path: a folder in the data directory
    clients: int = 0  # M, drawn at random; 0: all
    least: int = 1  # fewest training examples of a user; others are left out
    shape: tuple[int, ...] = ()  # of an example of numbers, such as (1, 28, 28); (): as in files
    text_features: int = 256  # number of buckets for the words of a tweet
    test_fraction: float = 0.1  # of each client's examples, if files are not divided
    validation_fraction: float | None = None  # of what is left for training, for validation

    def __post_init__(self) -> None:
        check_least(self, 0, "clients")
        check_least(self, 1, "least", "text_features")
        check(all(size >= 1 for size in self.shape), "shape", self.shape, "sizes of 1 or more")
        check_fractions(self.validation_fraction, self.test_fraction)

    def build(self, seed: int, sources: Sources) -> Federation:
        folder = Path(self.path) if self.source is None else sources.path(self.source)
        files = leaf_files(folder, "train")
        if not files:
            raise UsageError(f"{folder}: holds no .json files of LEAF, and no train/*.json")
        train, tests = read_users(files), read_users(leaf_files(folder, "test"))
        if tests and not tests.keys() & train.keys():
            raise UsageError(
                f"{folder}: no user has examples in both train and test, as LEAF's `-t user` "
                "divides: divide by `-t sample`, or leave test out and give it to `umbel assign`"
            )
        if others := [user for user in tests if user not in train]:
            log.warning("%s: without training examples, and left out: %s", folder, few(others))
        names = [user for user, (_, y) in train.items() if len(y) >= self.least]
        check(bool(names), "least", self.least, "low enough: no user has so many examples")
        if self.clients:
            check(self.clients <= len(names), "clients", self.clients, f"at most {len(names)}")
            drawn = generator(seed, Stream.DATA).choice(len(names), self.clients, replace=False)
            names = [names[place] for place in sorted(drawn)]
        nothing: tuple[list[Any], list[Any]] = [], []
        first = train[names[0]]
        given = {
            "train": [self._arrays(*train[name], first, name) for name in names],
            "test": [self._arrays(*tests.get(name, nothing), first, name) for name in names],
        }
        return Federation.from_arrays(
            given["train"],
            given["test"] if tests else None,
            names=names,
            num_classes=len(LETTERS) if isinstance(first[1][0], str) else None,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )

    def _arrays(
        self, x: list[Any], y: list[Any], first: tuple[list[Any], list[Any]], user: str
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The inputs and labels of a user; `first` are those of the first."""
        try:
            return self._inputs(x, first[0][0], isinstance(first[1][0], str)), _labels(y)
        except (ValueError, TypeError, LookupError) as error:
            expected = "numbers, texts with the next character, or rows of Sent140, alike for all"
            raise UsageError(f"client {user}: its examples are not {expected}: {error}") from None

    def _inputs(self, x: list[Any], first: Any, next_character: bool) -> NDArray[Any]:
        if isinstance(first, str):
            if not next_character:
                raise ValueError("x are texts, and y no characters")
            codes = [[LETTERS.find(c) % len(LETTERS) for c in text] for text in x]
            return np.array(codes, dtype=np.int64).reshape(-1, len(first))
        if isinstance(first, list) and any(isinstance(each, str) for each in first):
            return hashed_texts([str(row[TEXT]) for row in x], self.text_features)
        shape = self.shape or np.shape(first)
        if prod(shape) != np.size(first):
            raise ValueError(f"shape {shape} is not of {np.size(first)} values")
        return np.asarray(x, dtype=np.float32).reshape(-1, *shape)


def _labels(y: list[Any]) -> NDArray[Any]:
    """Class labels, which files also have as characters and as floats without fractions."""
    if y and isinstance(y[0], str) and not y[0].isdecimal():
        return np.array([LETTERS.find(c) % len(LETTERS) for c in y], dtype=np.int64)
    labels = np.asarray(y, dtype=np.float64)
    if labels.size and (labels != np.rint(labels)).any():
        return labels.astype(np.float32)
    return labels.astype(np.int64)
