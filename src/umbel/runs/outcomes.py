"""What runs came to, and what the seeds of a method came to together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from umbel.runs.folder import RunFolder
from umbel.runs.records import Record
from umbel.runs.sweep import parts_of

MEGABYTE = 1e6


@dataclass(frozen=True)
class Outcome:
    """What one run came to, or has come to so far."""

    method: str
    seed: int
    records: Sequence[Record]
    megabytes_down: float  # per client of the federation
    megabytes_up: float
    seconds: float

    @property
    def last(self) -> Record:
        """The record of the last round."""
        return self.records[-1]

    @classmethod
    def of(cls, folder: RunFolder) -> Outcome:
        """Read from the folder of a run that was begun."""
        experiment, records = folder.experiment, folder.records()
        num_clients = folder.num_clients
        return cls(
            experiment.name,
            experiment.seed,
            records,
            sum(record.bytes_down for record in records) / num_clients / MEGABYTE,
            sum(record.bytes_up for record in records) / num_clients / MEGABYTE,
            sum(record.seconds for record in records),
        )


def by_method(outcomes: Sequence[Outcome]) -> list[tuple[str, list[Outcome]]]:
    """The runs of each method, named without what all names end in; the best last.

    The variants of a sweep are named by their values, as in "joint lam=0.1".
    """
    ordered = sorted(outcomes, key=lambda outcome: (outcome.method, outcome.seed))
    methods = [list(group) for _, group in groupby(ordered, key=lambda o: o.method)]
    # Rounded, for rounding errors must not order methods that are equal.
    methods.sort(key=lambda runs: -round(mean([run.last.loss for run in runs]), 9))
    methods.sort(key=lambda runs: round(mean([run.last.accuracy for run in runs]), 9))
    parts = [parts_of(runs[0].method) for runs in methods]
    bases = _shortened({base for base, _ in parts})
    keys = _shortest({path for _, settings in parts for path in settings})
    names = [
        " ".join([bases[base], *(f"{keys[path]}={value}" for path, value in settings.items())])
        for base, settings in parts
    ]
    return list(zip(names, methods, strict=True))


def _shortened(names: set[str]) -> dict[str, str]:
    """Each name without the words, between hyphens, that all end in."""
    words = {name: name.split("-") for name in names}
    while (
        len(words) > 1
        and len({parts[-1] for parts in words.values()}) == 1
        and min(map(len, words.values())) > 1
    ):
        words = {name: parts[:-1] for name, parts in words.items()}
    return {name: "-".join(parts) for name, parts in words.items()}


def _shortest(paths: set[str]) -> dict[str, str]:
    """Each path of a setting by its last key, or whole where another one ends in that, too."""
    ends = [path.rpartition(".")[2] for path in paths]
    return {p: end if ends.count(end := p.rpartition(".")[2]) == 1 else p for p in paths}


def mean(values: Sequence[float | None]) -> float:
    """The mean of those that are known, minus infinity if none is."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else -np.inf


def average(values: Sequence[float | None], digits: int) -> str:
    """The mean as text, a dash if nothing is known."""
    found = mean(values)
    return f"{found:.{digits}f}" if np.isfinite(found) else "-"


def spread(values: Sequence[float | None], digits: int) -> str:
    """Mean and, over several seeds, standard deviation."""
    known = [value for value in values if value is not None]
    deviation = f"±{np.std(known):.{digits}f}" if len(known) > 1 else ""
    return average(values, digits) + deviation
