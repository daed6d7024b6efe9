"""Baselines: training alone, and one model for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from umbel.algorithms import FedAvg, LocalOnly
from umbel.algorithms.restarts import method_of
from umbel.runs.experiment import Experiment
from umbel.runs.result import Result
from umbel.runs.statistics.data import Data

BASELINES = LOCAL, FEDERATED = ("local-only", "FedAvg")
"""Training alone, and one model for all."""


def baseline_of(experiment: Experiment) -> str:
    """Which baseline this is, or nothing; a clustered method with one cluster is FedAvg, too.

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
class Baselines:
    """The finished runs of baselines, by seed; if one comparison has several, the best."""

    runs: Mapping[tuple[str, int], tuple[Result, ...]]

    @classmethod
    def among(cls, runs: Iterable[Result]) -> Baselines:
        """The baselines of these runs."""
        found: dict[tuple[str, int], list[Result]] = {}
        for run in runs:
            kind = baseline_of(run.experiment)
            if kind and run.finished:
                found.setdefault((kind, run.experiment.seed), []).append(run)
        return cls({key: tuple(each) for key, each in found.items()})

    def beside(self, run: Result, kind: str) -> Result | None:
        """The baseline on the same data under the same seed, unless it is the run itself.

        Baselines beside the run come first: those of other comparisons may have other rounds.
        """
        data = Data.of(run)
        same = [
            each
            for each in self.runs.get((kind, run.experiment.seed), ())
            if Data.of(each).is_like(data)
        ]
        place = run.folder.path.parent
        same = [each for each in same if each.folder.path.parent == place] or same
        if not same or any(each.folder == run.folder for each in same):
            return None
        return max(same, key=lambda each: _quality(each, run.by_loss))


def _quality(run: Result, by_loss: bool) -> float:
    value = run.last.loss if by_loss else run.last.accuracy
    if value is None:
        return float("-inf")
    return -value if by_loss else value
