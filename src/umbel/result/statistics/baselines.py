"""Baselines: training alone, and one model for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from umbel.algorithms import FedAvg, LocalOnly
from umbel.algorithms.restarts import method_of
from umbel.experiment.experiment import ExperimentSettings
from umbel.result.run import Result
from umbel.result.statistics.data import Data
from umbel.run.records import Record

BASELINES = LOCAL, FEDERATED = ("local-only", "FedAvg")
"""Training alone, and one model for all."""


def baseline_of(experiment: ExperimentSettings) -> str:
    """Return the name of a baseline, else ""; a clustered method with one cluster is FedAvg.

    Methods whose clients tune their models in the end are none.
    """
    if experiment.personal is not None:
        return ""
    algorithm = method_of(experiment.algorithm)
    if isinstance(algorithm, LocalOnly):
        return LOCAL
    one = isinstance(algorithm, FedAvg) or getattr(algorithm, "num_clusters", None) == 1
    return FEDERATED if one else ""


@dataclass(frozen=True)
class Baseline:
    """A finished run of a baseline, without the records before its last one."""

    run: Result
    last: Record

    def quality(self, by_loss: bool) -> float:
        """Return a number for the quality of the models that clients get; more is better."""
        value = self.last.loss if by_loss else self.last.accuracy
        if value is None:
            return float("-inf")
        return -value if by_loss else value


@dataclass(frozen=True)
class Baselines:
    """The finished runs of baselines, by seed; if one comparison has several, the best."""

    runs: Mapping[tuple[str, int], tuple[Baseline, ...]]

    @classmethod
    def among(cls, runs: Iterable[Result]) -> Baselines:
        """The baselines of these runs."""
        found: dict[tuple[str, int], list[Baseline]] = {}
        for run in runs:
            kind = baseline_of(run.experiment)
            if kind and run.finished:
                # A copy does not hold the records that the run has read.
                baseline = Baseline(replace(run), run.so_far)
                found.setdefault((kind, run.experiment.seed), []).append(baseline)
        return cls({key: tuple(each) for key, each in found.items()})

    def beside(self, run: Result, kind: str) -> Result | None:
        """The baseline on the same data under the same seed, unless it is the run itself.

        Baselines beside the run come first: those of other comparisons may have other rounds.
        """
        data = Data.of(run)
        same = [
            each
            for each in self.runs.get((kind, run.experiment.seed), ())
            if Data.of(each.run).is_like(data)
        ]
        place = run.folder.path.parent
        same = [each for each in same if each.run.folder.path.parent == place] or same
        if not same or any(each.run.folder == run.folder for each in same):
            return None
        return max(same, key=lambda each: each.quality(run.by_loss)).run
