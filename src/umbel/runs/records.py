"""One round's measurements: a line of `records.jsonl`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.engines.wrappers import Absences, Traffic
from umbel.notebooks import named
from umbel.runs.scores import (
    ClientScores,
    adjusted_rand_index,
    normalised_mutual_information,
    purity,
)
from umbel.words import counted


@dataclass(frozen=True)
class Record:
    """One round of a run; None for what is not known or was not measured in this round."""

    round: int  # counted from 0
    loss: float | None = None  # mean over clients of the mean test loss of each
    accuracy: float | None = None  # mean over clients of each one's test accuracy
    worst: float | None = None  # the worst client's accuracy
    accuracy_std: float | None = None  # standard deviation over clients
    weighted_accuracy: float | None = None  # mean over all test examples
    num_clusters: int | None = None
    num_models: int | None = None  # that the method trains; it changes when clients are clustered
    ari: float | None = None  # against the planted groups, where they are known
    purity: float | None = None
    nmi: float | None = None
    bytes_down: int = 0  # to all clients together, evaluation not counted
    bytes_up: int = 0
    seconds: float = 0.0  # without evaluation
    client_seconds: float = 0.0  # of these, waiting for clients
    missing: tuple[int, ...] = ()  # clients that were asked and did not answer
    refused: Mapping[int, str] = field(default_factory=dict)  # client: why its reply was set aside
    measures: Mapping[str, float | None] = field(default_factory=dict)  # what the method adds

    def __repr__(self) -> str:
        parts = [f"Record: round {self.round}"]
        if self.accuracy is not None:
            parts.append(f"accuracy {self.accuracy:.3f}")
        elif self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        if self.num_clusters is not None:
            parts.append(counted(self.num_clusters, "cluster"))
        if self.ari is not None:
            parts.append(f"ARI {self.ari:.2f}")
        absent = len(self.missing) + len(self.refused)
        return ", ".join([*parts, f"{absent} absent"] if absent else parts)

    def _repr_html_(self) -> str:
        known = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "measures"}
        known |= self.measures
        known |= {"missing": len(self.missing), "refused": len(self.refused)}
        lines = [(name, _said(value)) for name, value in known.items() if value is not None]
        return named(lines, repr(self))._repr_html_()

    def untimed(self) -> Record:
        """Without the times, which alone differ when the same run is made twice."""
        return replace(self, seconds=0.0, client_seconds=0.0)

    def sharing_time(self, runs: int) -> Record:
        """Of one of so many runs done side by side: its share of the seconds."""
        seconds, waiting = self.seconds / runs, self.client_seconds / runs
        return replace(self, seconds=seconds, client_seconds=waiting)

    def evaluated(self, scores: ClientScores) -> Record:
        """With what an evaluation after the round found."""
        return replace(self, **_quality(scores))

    def to_json(self) -> str:
        """One line; what the method adds stands beside the rest."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "measures"}
        return json.dumps({**values, **self.measures}, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Record:
        """The inverse of `to_json`. Raises `ValueError` for anything else."""
        values: dict[str, Any] = json.loads(line)
        own = {f.name for f in fields(cls)}
        measures = {name: values[name] for name in values if name not in own}
        known = {name: values[name] for name in values if name in own}
        known["missing"] = tuple(known["missing"])
        known["refused"] = {int(client): why for client, why in known["refused"].items()}
        return cls(**known, measures=measures)


def make_record(
    number: int,
    scores: ClientScores | None,
    clusters: NDArray[np.int64],
    groups: NDArray[np.int64] | None,
    traffic: Traffic,
    absences: Absences,
    seconds: float,
    measures: Mapping[str, float],
    num_models: int | None = None,
) -> Record:
    """Put together what was measured in a round, whether it was evaluated (`scores`) or not."""
    return Record(
        round=number,
        **({} if scores is None else _quality(scores)),
        num_clusters=len(np.unique(clusters)),
        num_models=num_models,
        **({} if groups is None else _agreement(groups, clusters)),
        bytes_down=traffic.bytes_down,
        bytes_up=traffic.bytes_up,
        seconds=seconds,
        client_seconds=traffic.seconds,
        missing=tuple(sorted(absences.missing)),
        refused=dict(sorted(absences.refused.items())),
        measures={name: _number(value) for name, value in measures.items()},
    )


def _quality(scores: ClientScores) -> dict[str, Any]:
    known = ~np.isnan(scores.loss)
    loss, accuracy = scores.loss[known], scores.accuracy[known]
    if not known.any():
        return {}
    weighted = np.average(accuracy, weights=scores.num_examples[known])
    return {
        "loss": _number(loss.mean()),
        "accuracy": _number(accuracy.mean()),
        "worst": _number(accuracy.min()),
        "accuracy_std": _number(accuracy.std()),
        "weighted_accuracy": _number(weighted),
    }


def _agreement(groups: NDArray[np.int64], clusters: NDArray[np.int64]) -> dict[str, Any]:
    return {
        "ari": adjusted_rand_index(groups, clusters),
        "purity": purity(groups, clusters),
        "nmi": normalised_mutual_information(groups, clusters),
    }


def _said(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _number(value: float) -> float | None:
    """JSON knows neither NaN nor infinity."""
    return float(value) if math.isfinite(value) else None
