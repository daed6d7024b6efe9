"""Every pair of methods, and how sure it is which of the two is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from umbel.runs.outcomes import CONTROLS
from umbel.runs.result import Result
from umbel.runs.rows import Table
from umbel.runs.statistics.contenders import Contender, contenders, gains
from umbel.runs.statistics.measures import Measure, measure_of
from umbel.runs.statistics.paired import Interval, interval

DOUBT = 0.05
"""Largest probability of a false difference among all pairs (familywise error)."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two methods, the one with the better mean first."""

    better: Contender
    other: Contender
    lead: Interval | None  # None: no seed and client in common
    p_value: float = 1.0  # of no difference, corrected for all pairs by Holm
    of: int = 1  # pairs that were compared

    @property
    def reversed(self) -> Pair:
        """The same pair the other way round."""
        lead = None if self.lead is None else self.lead.reversed
        return replace(self, better=self.other, other=self.better, lead=lead)

    @property
    def known(self) -> bool:
        """Whether there are results enough to judge by."""
        return self.lead is not None and self.lead.known

    @property
    def ahead(self) -> bool:
        """Whether the better one is ahead by more than chance, as the only pair."""
        return self.lead is not None and self.lead.ahead

    @property
    def sure(self) -> bool:
        """Whether it is so as one of all pairs."""
        return self.ahead and self.p_value <= DOUBT


@dataclass(frozen=True)
class Standing:
    """The method with the best mean, and every pair of methods."""

    leader: Contender
    pairs: tuple[Pair, ...]

    @property
    def others(self) -> list[Pair]:
        """The leader and each other method, the nearest first."""
        return [pair for pair in self.pairs if pair.better is self.leader]

    @property
    def controlled(self) -> dict[str, Pair]:
        """Each method that has a control, and the pair of both, the method first."""
        found = {}
        for pair in self.pairs:
            if pair.other.name == pair.better.name + CONTROLS:
                found[pair.better.name] = pair
            elif pair.better.name == pair.other.name + CONTROLS:
                found[pair.other.name] = pair.reversed
        return found

    @property
    def doubtful(self) -> list[Pair]:
        """The pairs with methods that the leader may be ahead of by chance.

        It is best where there is none: chance must then have put it ahead of all at once, which is
        rarer than of one, and needs no correction.
        """
        return [pair for pair in self.others if not pair.ahead]


def standing(methods: Sequence[Contender], measure: Measure) -> Standing:
    """Who is ahead of whom; the best of the methods is the last."""
    return Standing(methods[-1], tuple(pairs(methods, measure)))


def pairs(methods: Sequence[Contender], measure: Measure) -> list[Pair]:
    """All pairs of methods, the last of which is the best; its pairs come first."""
    found: list[tuple[Contender, Contender, Interval | None]] = []
    for better, other in combinations(reversed(methods), 2):
        gained = gains(better, other, measure)
        found.append((better, other, interval(gained) if gained else None))
    judged = [lead for _, _, lead in found if lead is not None and lead.known]
    corrected = dict(zip(map(id, judged), holm([lead.p_value for lead in judged]), strict=True))
    return [
        Pair(
            better=better,
            other=other,
            lead=lead,
            p_value=corrected.get(id(lead), 1.0),
            of=max(1, len(judged)),
        )
        for better, other, lead in found
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for there being several of them (Holm 1979), in the same order."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda n: p_values[n])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def differences(runs: Sequence[Result], judge: str | None = None) -> Table:
    """A row for each pair of methods of finished runs, with the interval of their difference.

    `judge` names what they are compared by. Raises `UsageError` where a run does not measure it,
    and for two runs of one name and seed, of which a pair can take only one.
    """
    finished = [run for run in runs if run.finished]
    measure = measure_of(finished, judge)
    return Table.of(
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
