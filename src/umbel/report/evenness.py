"""Evenness of clients' results, and agreement of clusters with attributes, over all seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from umbel.result.outcomes import mean_text, spread_text
from umbel.result.run import Result
from umbel.result.statistics.agreement import agreement
from umbel.result.statistics.baselines import Baselines
from umbel.result.statistics.fairness import Fairness, WorseOff, fairness


@dataclass(frozen=True)
class Evenness:
    """The statistics of a method, one for each seed."""

    seeds: tuple[Fairness, ...]
    agreements: tuple[dict[str, float], ...]  # of each seed's clusters with attributes

    def mean(self, of: Callable[[Fairness], float | None], by_loss: bool) -> str:
        """The mean over seeds as text, a dash if nothing is known."""
        return mean_text([of(each) for each in self.seeds], 4 if by_loss else 3, by_loss)

    def worse(self, of: Callable[[Fairness], WorseOff | None]) -> str:
        """The share of worse-off clients, and in brackets the share by more than chance."""
        known = [worse for each in self.seeds if (worse := of(each)) is not None]
        if not known:
            return "-"
        share = sum(worse.share for worse in known) / len(known)
        surely = [worse.surely for worse in known if worse.surely is not None]
        if len(surely) < len(known):
            return f"{share:.0%}"
        return f"{share:.0%} ({sum(surely) / len(surely):.0%})"

    def agrees(self, attribute: str) -> str:
        """The mean agreement of clusters with an attribute over seeds."""
        return mean_text([each.get(attribute) for each in self.agreements], 2)


def evenness(methods: Sequence[tuple[str, Sequence[Result]]]) -> list[Evenness]:
    """The statistics of each method, compared with the baselines among all methods."""
    baselines = Baselines.among(run for _, runs in methods for run in runs)
    return [
        Evenness(
            tuple(fairness(run, baselines) for run in runs),
            tuple(agreement(run.clients) if run.finished else {} for run in runs),
        )
        for _, runs in methods
    ]


def evenly(
    methods: Sequence[tuple[str, Sequence[Result]]], by_loss: bool
) -> list[tuple[str, list[str]]]:
    """Columns of a table, each with a head and a cell per method; a dash if not known."""
    several, digits = evenness(methods), 4 if by_loss else 3
    of: dict[str, Callable[[Fairness], float | None]] = {
        "worst tenth": lambda f: f.worst_tenth,
        "std over clients": lambda f: f.spread,
        "worse than alone": lambda f: _share(f.alone),
        "surely worse than alone": lambda f: _surely(f.alone),
        "worse than one model": lambda f: _share(f.one_model),
        "surely worse than one model": lambda f: _surely(f.one_model),
    }
    columns = [
        (head, [spread_text([*map(value, each.seeds)], digits, by_loss) for each in several])
        for head, value in of.items()
    ]
    for name in attributes_of(several):
        found = [[seed.get(name) for seed in each.agreements] for each in several]
        columns.append((f"AMI with {name}", [spread_text(values, 2) for values in found]))
    return columns


def attributes_of(several: Sequence[Evenness]) -> list[str]:
    """The attributes that any of them is compared with."""
    names = (name for each in several for found in each.agreements for name in found)
    return list(dict.fromkeys(names))


def of_clients(run: Result) -> dict[str, float]:
    """Facts about a single finished run beyond its records, by name."""
    what = "loss" if run.by_loss else "accuracy"
    found = {f"{what}, worst tenth of clients": fairness(run, Baselines({})).worst_tenth}
    agrees = agreement(run.clients) if run.finished else {}
    found |= {f"AMI with {name}": value for name, value in agrees.items()}
    return {name: value for name, value in found.items() if value is not None}


def _share(worse: WorseOff | None) -> float | None:
    return None if worse is None else worse.share


def _surely(worse: WorseOff | None) -> float | None:
    return None if worse is None else worse.surely
