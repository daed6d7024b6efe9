"""What a reader of a comparison should look at twice: equal methods, no spread, one seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from umbel.result.outcomes import rounded
from umbel.result.run import Result
from umbel.result.statistics.contenders import ComparedMethod, contenders, gains
from umbel.result.statistics.measures import ACCURACY, LOSS, Measure
from umbel.result.statistics.paired import interval
from umbel.result.statistics.pairs import DOUBT, MethodStanding, holm

Runs = Mapping[str, Sequence[Result]]
"""The finished runs of each method, by its name, one for each seed."""


def ranked(runs: Runs, measure: Measure) -> list[ComparedMethod]:
    """The methods under the names that they have here, the best last."""
    sign = -1 if measure.lower else 1
    named = [replace(contenders(each, measure)[0], name=name) for name, each in runs.items()]
    return sorted(named, key=lambda method: rounded(sign * method.quality))


def marks_of(runs: Runs, deciding: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    """The marks of each method that has any, in words.

    `deciding` are the seeds that decide the comparison of a method with the best one.
    """
    losses = {method.name: method.scores for method in ranked(runs, LOSS)}
    marks: dict[str, list[str]] = {}
    for name, each in runs.items():
        found = [f"equals {n} bit for bit" for n in runs if n != name and losses[n] == losses[name]]
        if len(each) > 1 and len({run.last.accuracy for run in each}) == 1:
            found.append("no spread over seeds")
        if name in deciding:
            found.append(f"decided by seed {', '.join(map(str, deciding[name]))}")
        if found:
            marks[name] = found
    return marks


def deciding_seeds(order: MethodStanding) -> dict[tuple[str, str], list[int]]:
    """The pairs of which the other method is ahead, or a lead is sure or not, without one seed.

    Every p-value is corrected as in the whole comparison.
    """
    judged = [pair for pair in order.pairs if pair.known and pair.lead and pair.lead.seeds > 1]
    gained = [gains(pair.better, pair.other, ACCURACY) for pair in judged]
    found: dict[tuple[str, str], list[int]] = {}
    for seed in sorted({gain.seed for each in gained for gain in each}):
        leads = [interval([gain for gain in each if gain.seed != seed]) for each in gained]
        p_values = holm([lead.p_value for lead in leads], order.left_out)
        for pair, lead, p_value in zip(judged, leads, p_values, strict=True):
            sure = lead.ahead and p_value <= DOUBT
            if sure != pair.sure or (lead.mean > 0) != (
                pair.lead is not None and pair.lead.mean > 0
            ):
                found.setdefault((pair.better.name, pair.other.name), []).append(seed)
    return found
