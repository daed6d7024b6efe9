"""Pairs of methods, and how sure it is which of the two is better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

from umbel.result.outcomes import CONTROLS
from umbel.result.run import Result
from umbel.result.statistics.contenders import ComparedMethod, contenders, gains
from umbel.result.statistics.measures import Measure, measure_of
from umbel.result.statistics.paired import Interval, interval
from umbel.result.table import Table

COLUMNS = (
    *("method", "other", "measure", "gain", "low", "high", "p_value", "p_holm"),
    *("sure", "seeds", "results"),
)
"""Columns of the table of differences."""

DOUBT = 0.05
"""Largest probability of a false difference among all pairs (familywise error)."""

MOST_METHODS = 20
"""Among more methods, a standing has only the pairs with the best one and with controls.

Each of the others takes a bootstrap of its own: 1,000 methods have 499,500 pairs."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two methods, the one with the better mean first."""

    better: ComparedMethod
    other: ComparedMethod
    lead: Interval | None  # None: no seed and client in common
    p_value: float = 1.0  # of no difference, corrected for all pairs by Holm
    of: int = 1  # pairs that it is corrected for

    @property
    def reversed(self) -> Pair:
        """Return the pair in the other order."""
        lead = None if self.lead is None else self.lead.reversed
        return replace(self, better=self.other, other=self.better, lead=lead)

    @property
    def known(self) -> bool:
        """True if there are enough results to judge by."""
        return self.lead is not None and self.lead.known

    @property
    def ahead(self) -> bool:
        """True if the better method is ahead beyond chance, taken as the only pair."""
        return self.lead is not None and self.lead.ahead

    @property
    def sure(self) -> bool:
        """True if it is ahead beyond chance, taken as one of all pairs."""
        return self.ahead and self.p_value <= DOUBT


@dataclass(frozen=True)
class MethodStanding:
    """The method with the best mean, and every pair of methods; of many, its pairs and controls."""

    leader: ComparedMethod
    pairs: tuple[Pair, ...]
    left_out: int = 0  # pairs that were not compared, but are corrected for

    @property
    def others(self) -> list[Pair]:
        """The leader and each other method, the nearest first."""
        return [pair for pair in self.pairs if pair.better is self.leader]

    @property
    def controlled(self) -> dict[str, Pair]:
        """Each method that has a control, and the pair of both, the method first."""
        found = {}
        for pair in self.pairs:
            if _controls(pair.other, pair.better):
                found[pair.better.name] = pair
            elif _controls(pair.better, pair.other):
                found[pair.other.name] = pair.reversed
        return found

    @property
    def all_judged(self) -> bool:
        """True if the correction counts all pairs, as each has enough results."""
        return max(pair.of for pair in self.pairs) == len(self.pairs) + self.left_out

    @property
    def doubtful(self) -> list[Pair]:
        """The pairs with methods that the leader may be ahead of by chance.

        It is best where there is none: chance must then have put it ahead of all at once, which is
        rarer than of one, and needs no correction.
        """
        return [pair for pair in self.others if not pair.ahead]


def standing(methods: Sequence[ComparedMethod], measure: Measure) -> MethodStanding:
    """Compare all pairs of methods; the best method comes last."""
    leader = methods[-1]
    if len(methods) <= MOST_METHODS:
        return MethodStanding(leader, tuple(pairs(methods, measure)))
    shown = [
        (better, other)
        for better, other in combinations(reversed(methods), 2)
        if better is leader or _controls(other, better) or _controls(better, other)
    ]
    left_out = comb(len(methods), 2) - len(shown)
    return MethodStanding(leader, tuple(_compared(shown, measure, left_out)), left_out)


def pairs(methods: Sequence[ComparedMethod], measure: Measure) -> list[Pair]:
    """All pairs of methods, the last of which is the best; its pairs come first."""
    return _compared(combinations(reversed(methods), 2), measure)


def _controls(one: ComparedMethod, other: ComparedMethod) -> bool:
    """Return True if one method has random clusters of the other's sizes."""
    return one.name == other.name + CONTROLS


def _compared(
    chosen: Iterable[tuple[ComparedMethod, ComparedMethod]], measure: Measure, left_out: int = 0
) -> list[Pair]:
    """These pairs, corrected for themselves and for those that are left out."""
    found: list[tuple[ComparedMethod, ComparedMethod, Interval | None]] = []
    for better, other in chosen:
        gained = gains(better, other, measure)
        found.append((better, other, interval(gained) if gained else None))
    judged = [lead for _, _, lead in found if lead is not None and lead.known]
    p_values = holm([lead.p_value for lead in judged], left_out)
    corrected = dict(zip(map(id, judged), p_values, strict=True))
    return [
        Pair(
            better=better,
            other=other,
            lead=lead,
            p_value=corrected.get(id(lead), 1.0),
            of=max(1, len(judged) + left_out),
        )
        for better, other, lead in found
    ]


def holm(p_values: Sequence[float], left_out: int = 0) -> list[float]:
    """The p-values corrected for there being several of them (Holm 1979), in the same order.

    Others that are left out count as if each were 1. As no corrected p-value falls where another
    p-value rises, these are at least what they would be if all were known.
    """
    corrected = [0.0] * len(p_values)
    largest, number = 0.0, len(p_values) + left_out
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda n: p_values[n])):
        largest = max(largest, min(1.0, (number - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def differences(runs: Sequence[Result], judge: str | None = None) -> Table:
    """A row for each pair of methods of finished runs, with the interval of their difference.

    `judge` names what they are compared by. Raises `UsageError` where a run does not measure it,
    and for two runs of one name and seed, of which a pair can take only one.
    """
    finished = [run for run in runs if run.finished]
    measure = measure_of(finished, judge)
    rows = (
        {
            "method": pair.better.name,
            "other": pair.other.name,
            "measure": measure.name,
            "gain": None if pair.lead is None else pair.lead.mean,
            "low": pair.lead.low if pair.lead is not None and pair.known else None,
            "high": pair.lead.high if pair.lead is not None and pair.known else None,
            "p_value": pair.lead.p_value if pair.lead is not None and pair.known else None,
            "p_holm": pair.p_value if pair.known else None,
            "sure": pair.sure,
            "seeds": 0 if pair.lead is None else pair.lead.seeds,
            "results": 0 if pair.lead is None else pair.lead.pairs,
        }
        for pair in pairs(contenders(finished, measure), measure)
    )
    return Table.of(rows, COLUMNS)
