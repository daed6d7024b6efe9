"""The results of a reproduction in a small file, which anyone can reproduce."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from umbel.files.atomic import write_text
from umbel.folder.sessions_file import environment
from umbel.papers.base import Size
from umbel.papers.findings import kept_files
from umbel.papers.measures import named
from umbel.summary import counted, joined_by_and

MOST_POINTS = 100
"""Largest number of rounds of a curve that are saved, without the last."""


@dataclass(frozen=True)
class Curve:
    """A measure after some rounds, over seeds; None if it was not measured."""

    rounds: tuple[int, ...]  # counted from 1
    mean: tuple[float | None, ...]
    std: tuple[float | None, ...]


@dataclass(frozen=True)
class CellResult:
    """The results of one cell."""

    row: str
    column: str
    rounds: int
    values: Mapping[str, tuple[float | None, ...]]  # measure -> one value per seed
    courses: Mapping[str, Curve]  # by measure
    spectra: tuple[tuple[float, ...], ...] = ()  # singular values of each seed

    @property
    def num_seeds(self) -> int:
        """The number of seeds that its values are of."""
        return max(map(len, self.values.values()), default=0)

    def first(self, num_seeds: int) -> CellResult:
        """Return the results with the values of the first seeds alone."""
        return replace(self, values={name: of[:num_seeds] for name, of in self.values.items()})

    def mean(self, measure: str) -> float | None:
        """The mean over seeds; None if some seed has no value.

        In a number of rounds, a seed that never reached the goal counts with all its rounds.
        """
        return self._over_seeds(measure, np.mean)

    def std(self, measure: str) -> float | None:
        """The deviation over seeds, counted in the same way; None for a single seed."""
        return None if len(self.values[measure]) < 2 else self._over_seeds(measure, np.std)

    def _over_seeds(self, measure: str, of: Callable[[Sequence[float]], Any]) -> float | None:
        values = self.values[measure]
        in_rounds = named(measure).of_rounds is not None
        if in_rounds and any(value is not None for value in values):
            values = tuple(self.rounds if value is None else value for value in values)
        known = [value for value in values if value is not None]
        return float(of(known)) if len(known) == len(values) else None


@dataclass(frozen=True)
class MadeCell:
    """The versions and the machine that made results."""

    command: str  # the last one
    versions: Mapping[str, str]  # of the runs, by package; several if they differ
    hardware: str
    seconds: float  # of the rounds of all runs, without evaluation


@dataclass(frozen=True)
class SavedResults:
    """The results of a reproduction at one size."""

    name: str
    size: Size
    seeds: tuple[int, ...]  # of the last command; what it did not make may have others
    made: MadeCell
    cells: tuple[CellResult, ...]
    every: int | None = None  # number of cells of the table, if some have no result yet

    @cached_property
    def by_place(self) -> Mapping[tuple[str, str], CellResult]:
        """The cells by row and column."""
        return {(cell.row, cell.column): cell for cell in self.cells}

    @property
    def missing(self) -> int:
        """The number of cells of the table without a result."""
        return 0 if self.every is None else self.every - len(self.cells)

    @property
    def done_so_far(self) -> str:
        """Text with the number of results if some are missing; otherwise empty."""
        return f"{len(self.cells)} of {self.every}" if self.missing else ""

    @property
    def seeds_told(self) -> str:
        """Text with the number of seeds, or its range if it differs between cells."""
        numbers = [cell.num_seeds for cell in self.cells] or [len(self.seeds)]
        fewest, most = min(numbers), max(numbers)
        return counted(most, "seed") if fewest == most else f"{fewest} to {most} seeds"

    def write(self, file: Path) -> None:
        """The results in JSON, one line per cell."""
        cells = [json.dumps(asdict(cell), allow_nan=False) for cell in self.cells]
        head: dict[str, Any] = {"name": self.name, "size": self.size, "seeds": self.seeds}
        head |= {} if self.every is None else {"every": self.every}
        whole = json.dumps({**head, "made": asdict(self.made)}, indent=1)
        inner = ",\n  ".join(cells)
        write_text(file, f'{whole[:-2]},\n "cells": [\n  {inner}\n ]\n}}\n')

    @classmethod
    def read(cls, file: Path) -> SavedResults:
        """Read the results that `write` has written."""
        table: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        cells = tuple(_cell(cell) for cell in table["cells"])
        made = MadeCell(**table["made"])
        seeds, every = tuple(table["seeds"]), table.get("every")
        return cls(table["name"], table["size"], seeds, made, cells, every)


def kept(name: str) -> Iterator[SavedResults]:
    """The results of a reproduction that come with the package, the largest size first."""
    yield from map(SavedResults.read, kept_files(name))


def made_in(command: str, seconds: float, sessions: Sequence[Mapping[str, Any]]) -> MadeCell:
    """Return all versions, threads and GPUs of the runs with these sessions.

    Runs do not note the name of their processor; it is this machine's.
    """
    in_order = sorted(sessions, key=lambda session: str(session["began"])) or [environment()]
    names = dict.fromkeys(name for each in in_order for name in each.get("versions", {}))
    versions = {
        name: _all(each["versions"][name] for each in in_order if name in each.get("versions", {}))
        for name in names
    }
    threads = _all(each.get("threads", "unknown") for each in in_order)
    devices = _all(each.get("cuda") or "no GPU" for each in in_order)
    hardware = f"{_processor()}, {threads} {'thread' if threads == '1' else 'threads'}, {devices}"
    return MadeCell(command, versions, hardware, round(seconds, 1))


def _all(values: Iterable[object]) -> str:
    """Different values, in the order in which they come first."""
    return joined_by_and(list(dict.fromkeys(map(str, values))))


def curve(runs: Sequence[Sequence[float | None]]) -> Curve:
    """Mean and spread over runs of a value per round.

    It has every n-th round, at most `MOST_POINTS` of them, and the last. It ends where the first
    run does: later means would be over other seeds than before.
    """
    known = [n for n, values in enumerate(zip(*runs, strict=False)) if None not in values]
    step = -(-len(known) // MOST_POINTS) if known else 1
    kept_rounds = sorted({*known[::step], *known[-1:]})
    table = np.array([[run[n] for n in kept_rounds] for run in runs], dtype=float)
    mean, std = table.mean(0), table.std(0)
    return Curve(
        tuple(n + 1 for n in kept_rounds),
        tuple(round(float(v), 5) for v in mean),
        tuple(round(float(v), 5) for v in std),
    )


def _cell(cell: Mapping[str, Any]) -> CellResult:
    return CellResult(
        cell["row"],
        cell["column"],
        cell["rounds"],
        {name: tuple(values) for name, values in cell["values"].items()},
        {name: Curve(*map(tuple, value.values())) for name, value in cell["courses"].items()},
        tuple(map(tuple, cell["spectra"])),
    )


def _processor() -> str:
    """The machine's name of its processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
