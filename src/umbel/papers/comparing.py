"""Comparison of our numbers with the paper's: differences, and orders of methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import hypot, sqrt

from umbel.papers.base import Reproduction
from umbel.papers.findings import Claim, Published
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
    seeds: int  # how many
    at_least: bool = False  # whether the mean is a lower bound
    never_in: int | None = None  # the rounds in which no seed reached the goal
    other_seeds: bool = False  # whether the table has another number of seeds

    @property
    def difference(self) -> float | None:
        """Our number minus the paper's."""
        if self.mean is None or self.published is None:
            return None
        return self.mean - self.published.mean

    @property
    def error(self) -> float:
        """The standard error of our mean; the paper's deviation stands in for a single seed's."""
        if self.std is None:
            return (self.published and self.published.std) or 0.0
        return self.std / sqrt(self.seeds - 1)  # `std` is that of these seeds alone

    @property
    def near(self) -> bool | None:
        """Whether the two means lie within two standard errors of their difference.

        None without both numbers, and for a lower bound that the paper's doesn't contradict.
        """
        if self.difference is None or self.published is None:
            return None
        allowed = max(2 * hypot(self.error, self.published.error), self.last_decimal / 2)
        if self.at_least and self.difference <= allowed:
            return None
        return abs(self.difference) <= allowed

    @property
    def agrees(self) -> bool | None:
        """Whether they are near; None, too, without a spread of each, from two or more seeds."""
        theirs = None if self.published is None else self.published.std
        return None if self.std is None or theirs is None else self.near

    @property
    def last_decimal(self) -> float:
        """One in the last place that is printed."""
        return 10.0 ** -named(self.measure).digits

    @property
    def ours(self) -> str:
        """Mean, standard deviation and seeds if others; a dash if the mean is not known."""
        if self.mean is None:
            return "-"
        places = named(self.measure).digits
        spread = "" if self.std is None else f" ± {self.std:.{places}f}"
        seeds = f" ({counted(self.seeds, 'seed')})" if self.other_seeds else ""
        return f"{self.mean:.{places}f}{spread}{' or more' * self.at_least}{seeds}"

    @property
    def verdict(self) -> str:
        """The difference, and whether the two agree; empty without a difference."""
        if self.difference is None or (self.at_least and self.near is None):
            return ""
        places = named(self.measure).digits
        return f"{self.difference:+.{places}f}" + " agrees" * bool(self.agrees)


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
            row = _measured(ours, measure, published)
        else:
            continue
        rows.append(replace(row, other_seeds=row.seeds != len(results.seeds)))
    return rows


def _measured(ours: CellResult, measure: str, published: Published | None) -> Compared:
    """The mean over seeds: a lower bound if some seed never reached the goal."""
    mean, std, seeds = ours.mean(measure), ours.std(measure), ours.num_seeds
    at_least = mean is not None and None in ours.values[measure]
    never = ours.rounds if mean is None and named(measure).of_rounds else None
    place = ours.row, ours.column, measure
    return Compared(*place, mean, std, published, seeds, at_least, never)


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
    place = ours.row, ours.column, measure
    return Compared(*place, saved, None, published, ours.num_seeds, at_least)


@dataclass(frozen=True)
class MethodPair:
    """Two rows of a column that both the paper and our results have."""

    column: str
    better: str  # the row that comes first in the paper
    worse: str
    kept: bool | None  # whether it comes first here; None: too close to tell, in either


def pairs(wanted: Reproduction, results: SavedResults, measure: str) -> Iterator[MethodPair]:
    """All pairs of rows that both have, and whether they come in the paper's order.

    Two rows are told apart by more than two standard errors of their difference, in the paper and
    here.
    """
    rows = [row for row in compared(wanted, results, measure) if row.difference is not None]
    for one, other in combinations(rows, 2):
        paper, other_paper = one.published, other.published
        if one.column != other.column or paper is None or other_paper is None:
            continue
        theirs = (paper.mean - other_paper.mean) * _sign(measure)
        ours = ahead(one, other)
        clear = ours is not None and abs(theirs) > 2 * hypot(paper.error, other_paper.error)
        better, worse = (one, other) if theirs > 0 else (other, one)
        yield MethodPair(one.column, better.row, worse.row, (theirs > 0) is ours if clear else None)


def ahead(one: Compared, other: Compared) -> bool | None:
    """Return True if our number of one row is better than another's; None: not told apart.

    They are apart by more than two standard errors of the difference, and than the last decimal. A
    lower bound, such as all rounds where a goal is never reached, is not below another number.
    """
    mine, its = (row.never_in if row.mean is None else row.mean for row in (one, other))
    if mine is None or its is None:
        return None
    ours = mine - its
    far = abs(ours) > max(2 * hypot(one.error, other.error), one.last_decimal)
    smaller = one if ours < 0 else other
    known = not smaller.at_least and smaller.mean is not None
    return ours * _sign(one.measure) > 0 if far and known else None


@dataclass(frozen=True)
class JudgedClaim:
    """How many of our numbers, at one size, are as a claim has them."""

    results: SavedResults | None  # None: nobody tested it
    kept: tuple[bool | None, ...]  # of each pair of rows, or number; None: not told apart

    @property
    def verdict(self) -> str:
        """Whether the claim holds here, in a few words."""
        held, against = self.kept.count(True), self.kept.count(False)
        if self.results is None:
            return "not tested"
        if not held + against:
            return "not told apart"
        return "holds" if not against else "holds in part" if held else "does not hold"


def judged(claim: Claim, wanted: Reproduction, sizes: Iterable[SavedResults]) -> JudgedClaim:
    """A claim by the largest results that tell something; its rows decide, not the paper's."""
    found = JudgedClaim(None, ())
    for results in sizes:
        cells = [
            cell
            for cell in compared(wanted, results, claim.measure)
            if not claim.columns or cell.column in claim.columns
        ]
        if claim.behind:
            first = (cell for cell in cells if cell.row in claim.ahead)
            both = product(first, [cell for cell in cells if cell.row in claim.behind])
            kept = tuple(ahead(one, other) for one, other in both if one.column == other.column)
        else:
            here = (cell for cell in cells if cell.row in claim.ahead)
            kept = tuple(cell.near for cell in here if cell.published is not None)
        judged_here = JudgedClaim(results, kept)
        if any(pair is not None for pair in kept):
            return judged_here
        if kept and found.results is None:
            found = judged_here
    return found


def _sign(measure: str) -> int:
    return -1 if named(measure).lower_is_better else 1


def order(wanted: Reproduction, results: SavedResults, measure: str, around: str = "") -> str:
    """Sentences about the order of rows: how many pairs are as in the paper, and which are not.

    Names of columns have `around` on both sides, such as what Markdown has for emphasis.
    """
    found = list(pairs(wanted, results, measure))
    kept = [pair.kept for pair in found]
    said = f"{kept.count(True)} of {counted(len(found), 'pair')} of rows in the paper's order, "
    said += f"{kept.count(False)} reversed, {kept.count(None)} not told apart."
    worse: dict[str, dict[str, list[str]]] = {}
    for pair in found:
        if pair.kept is False:
            worse.setdefault(pair.column, {}).setdefault(pair.better, []).append(pair.worse)
    columns = []
    for column, behind in worse.items():
        names = ", ".join(
            f"{better} before {joined_by_and(rows)}" for better, rows in behind.items()
        )
        columns.append(f"{around}{column}{around}, {names}")
    return said + (f" In the paper, but not here: {'; '.join(columns)}." if columns else "")


def has_order(wanted: Reproduction, results: SavedResults, measure: str) -> bool:
    """Return True if the paper has numbers for two rows of one column."""
    known = [c.column for c in compared(wanted, results, measure) if c.difference is not None]
    return len(known) > len(set(known))


def summary(wanted: Reproduction, results: SavedResults) -> str:
    """The number of values that agree, and of pairs of rows by their order."""
    if results.size == "smoke":
        return "it runs"
    cells = [cell for name in wanted.measures for cell in compared(wanted, results, name)]
    judged = [cell.agrees for cell in cells if cell.agrees is not None]
    kept = [pair.kept for name in wanted.measures for pair in pairs(wanted, results, name)]
    said = f"{sum(judged)} of {counted(len(judged), 'number')} with spreads agree; "
    return (said if judged else "") + (
        f"pairs of rows: {kept.count(True)} in order, {kept.count(False)} reversed, "
        f"{kept.count(None)} not apart"
    )
