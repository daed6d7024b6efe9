"""Comparison of our numbers with the paper's: differences, and orders of methods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import hypot

from umbel.papers.base import Reproduction
from umbel.papers.findings import Published
from umbel.papers.measures import named
from umbel.papers.saved_results import CellResult, SavedResults
from umbel.summary import counted, joined_by_and

SAVED = "saved_"
"""Prefix of measures of the percentage of rounds that a row saves against the baseline."""


@dataclass(frozen=True)
class Compared:
    """Our number, and the paper's if it has one."""

    row: str
    column: str
    measure: str
    mean: float | None  # over seeds
    std: float | None
    published: Published | None
    at_least: bool = False  # whether the mean is a lower bound
    seeds: int | None = None  # how many, if it is not the table's number

    @property
    def difference(self) -> float | None:
        """Our number minus the paper's."""
        if self.mean is None or self.published is None:
            return None
        return self.mean - self.published.mean

    @property
    def within(self) -> bool | None:
        """Return True if the two lie within their spreads of each other.

        None without both numbers, and for a lower bound that the paper's number doesn't contradict:
        how far apart the two are is not known.
        """
        if self.difference is None or self.published is None:
            return None
        # Printed numbers have a rounding error of up to half of the last decimal.
        rounding = 0.5 * 10.0 ** -named(self.measure).digits
        allowed = (self.std or 0.0) + self.published.std + rounding
        if self.at_least and self.difference <= allowed:
            return None
        return abs(self.difference) <= allowed

    @property
    def ours(self) -> str:
        """Mean, standard deviation and seeds if others; a dash if the mean is not known."""
        if self.mean is None:
            return "-"
        places = named(self.measure).digits
        spread = "" if self.std is None else f" ± {self.std:.{places}f}"
        seeds = "" if self.seeds is None else f" ({counted(self.seeds, 'seed')})"
        return f"{self.mean:.{places}f}{spread}{' or more' * self.at_least}{seeds}"

    @property
    def verdict(self) -> str:
        """The difference, and whether it is within the spreads; empty if that is not known."""
        if self.difference is None or self.within is None:
            return ""
        places = named(self.measure).digits
        return f"{self.difference:+.{places}f}" + " within" * self.within


def compared(wanted: Reproduction, results: SavedResults, measure: str) -> list[Compared]:
    """Every cell by one measure, in the order of the table."""
    places = results.by_place
    rows = []
    for cell in wanted.cells(results.size):
        ours = places.get((cell.row, cell.column))
        published = wanted.said.of_paper(cell.row, cell.column, measure)
        if ours is None:
            continue
        if measure.startswith(SAVED):
            baseline = places.get((wanted.baseline, cell.column))
            if baseline is None or ours is baseline:
                continue
            num_seeds = min(ours.num_seeds, baseline.num_seeds)
            row = _saved(ours.first(num_seeds), baseline.first(num_seeds), measure, published)
        elif measure in ours.values:
            num_seeds, row = ours.num_seeds, _measured(ours, measure, published)
        else:
            continue
        rows.append(row if num_seeds == len(results.seeds) else replace(row, seeds=num_seeds))
    return rows


def _measured(ours: CellResult, measure: str, published: Published | None) -> Compared:
    """The mean over seeds: a lower bound if some seed never reached the goal."""
    mean, std = ours.mean(measure), ours.std(measure)
    at_least = mean is not None and None in ours.values[measure]
    return Compared(ours.row, ours.column, measure, mean, std, published, at_least)


def _saved(
    ours: CellResult, baseline: CellResult, measure: str, published: Published | None
) -> Compared:
    """Mean percentage of rounds that a row needed less than the baseline.

    For a baseline that never reached the goal, its number of rounds is a lower bound. A row that
    failed with some seed has no number.
    """
    kind = measure.removeprefix(SAVED)
    spent, most = ours.mean(kind), baseline.mean(kind) or float(baseline.rounds)
    missed = spent is None or None in ours.values[kind]
    saved = None if spent is None or missed else 100 * (1 - spent / most)
    at_least = saved is not None and None in baseline.values[kind]
    return Compared(ours.row, ours.column, measure, saved, None, published, at_least)


@dataclass(frozen=True)
class MethodPair:
    """Two rows of a column that both the paper and our results have."""

    column: str
    better: str  # the row that comes first in the paper
    worse: str
    kept: bool | None  # whether it comes first here; None: too close to tell, in either


def pairs(wanted: Reproduction, results: SavedResults, measure: str) -> Iterator[MethodPair]:
    """All pairs of rows, and whether they come in the paper's order.

    Two rows are clearly apart by more than the standard deviation of the difference, and than the
    last decimal that is printed. A lower bound is not clearly below another number. A single seed
    has no deviation; the paper's stands for it.
    """
    sign = -1 if named(measure).lower_is_better else 1
    rows = [
        (row, row.mean, row.published)
        for row in compared(wanted, results, measure)
        if row.mean is not None and row.published is not None
    ]
    for (one, mean, paper), (other, other_mean, other_paper) in combinations(rows, 2):
        if one.column != other.column:
            continue
        ours, theirs = mean - other_mean, paper.mean - other_paper.mean
        spread = hypot(paper.std, other_paper.std)
        several = one.std is not None and other.std is not None
        own = hypot(one.std or 0.0, other.std or 0.0) if several else spread
        printed = 10.0 ** -named(measure).digits
        # How far a lower bound is from what lies above it is not known.
        known = not (one if ours < 0 else other).at_least
        clear = known and abs(theirs) > spread and abs(ours) > max(own, printed)
        better, worse = (one, other) if theirs * sign > 0 else (other, one)
        yield MethodPair(one.column, better.row, worse.row, theirs * ours > 0 if clear else None)


def reversals(wanted: Reproduction, results: SavedResults, measure: str) -> Iterator[MethodPair]:
    """Pairs of rows that are clearly in another order than in the paper."""
    return (pair for pair in pairs(wanted, results, measure) if pair.kept is False)


def order(wanted: Reproduction, results: SavedResults, measure: str, around: str = "") -> str:
    """A sentence about the rows that are in another order than in the paper.

    Names of columns have `around` on both sides, such as what Markdown has for emphasis.
    """
    worse: dict[str, dict[str, list[str]]] = {}
    for pair in reversals(wanted, results, measure):
        worse.setdefault(pair.column, {}).setdefault(pair.better, []).append(pair.worse)
    if not worse:
        return "wherever the paper's rows are clearly apart, ours are not reversed."
    columns = []
    for column, behind in worse.items():
        said = ", ".join(
            f"{better} is before {joined_by_and(rows)}" for better, rows in behind.items()
        )
        columns.append(f"{around}{column}{around}, {said}")
    return f"in the paper, but not here: {'; '.join(columns)}."


def has_order(wanted: Reproduction, results: SavedResults, measure: str) -> bool:
    """Return True if the paper has numbers for two rows of one column."""
    known = [c.column for c in compared(wanted, results, measure) if c.difference is not None]
    return len(known) > len(set(known))


def summary(wanted: Reproduction, results: SavedResults) -> str:
    """The number of values within the spreads, and of places in another order."""
    if results.size == "smoke":
        return "it runs"
    cells = [cell for name in wanted.measures for cell in compared(wanted, results, name)]
    known = [cell for cell in cells if cell.within is not None]
    against = sum(len(list(reversals(wanted, results, name))) for name in wanted.measures)
    inside = sum(cell.within is True for cell in known)
    return f"{inside} of {len(known)} numbers within the spreads, {against} reversed"
