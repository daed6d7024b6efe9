"""The runs of a method that checks make."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from umbel.algorithms.base import Algorithm, State
from umbel.checks import UsageError
from umbel.result.run import Run
from umbel.run.records import Record
from umbel.testing.federations import adapted_mlp, blobs, mlp

ROUNDS = 6
"""Number of rounds that checks run; a method should cluster within them."""


def run_of(algorithm: Algorithm[Any], dtype: torch.dtype = torch.float64, **changes: Any) -> Run:
    """A run with a network of this type, by default in double precision.

    It has full participation or adapters if the method needs them.
    """
    given = {"federation": blobs(), "net": mlp(dtype=dtype), "participation": 0.75}
    settings = {"seed": 3, **given, **changes}
    asked_for = {"participation": 1.0, "net: no adapters": adapted_mlp(dtype)}
    while True:
        try:
            return Run(algorithm, **settings)
        except UsageError as error:
            more = [start for start in asked_for if str(error).startswith(start)]
            if not more:
                raise
            settings |= {start.split(":")[0]: asked_for.pop(start) for start in more}


def uninterrupted(algorithm: Algorithm[Any]) -> list[tuple[State, Record]]:
    """The rounds of an uninterrupted run, with which several checks compare other runs."""
    try:
        hash(algorithm)
    except TypeError:  # some setting is a list
        return _uninterrupted(algorithm)
    return _remembered(algorithm)


def _uninterrupted(algorithm: Algorithm[Any]) -> list[tuple[State, Record]]:
    return list(run_of(algorithm).rounds(ROUNDS))


_remembered = lru_cache(maxsize=1)(_uninterrupted)


def last_state(run: Run, **resumed: Any) -> State:
    """The state after the last round."""
    *_, (state, _) = run.rounds(ROUNDS, **resumed)
    return state
