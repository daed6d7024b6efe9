"""What a finished run came to, in the terms of the papers' tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log10

from umbel.runs.execution import load
from umbel.runs.folder import RunFolder
from umbel.runs.records import Record
from umbel.server.cluster_count import largest_gap, singular_values

OPTIMAL = 1.0 - 1e-9
"""An ARI from which on the clusters are the planted groups."""


def measure(name: str, folder: RunFolder, records: Sequence[Record]) -> float | None:
    """The measure of this name, of a finished run; `name@5` is after 5 rounds. None: there is none.

    Raises `KeyError` for a name that is not known.
    """
    kind, _, at = name.partition("@")
    if kind in OF_RUNS:
        return OF_RUNS[kind](folder)
    if kind in OF_COURSES:
        return OF_COURSES[kind](records)
    if at and int(at) > len(records):
        return None
    return OF_RECORDS[kind](records[int(at) - 1 if at else -1])


def series(name: str, records: Sequence[Record]) -> list[float | None]:
    """A measure of records after every round."""
    return [OF_RECORDS[name](record) for record in records]


def title(name: str) -> str:
    """What a measure is called in tables."""
    kind, _, at = name.partition("@")
    return TITLES[kind] + (f" after {at} rounds" if at else "")


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _decibels(value: float | None) -> float | None:
    return None if not value else 10 * log10(value)


def _peak_round(records: Sequence[Record]) -> float | None:
    """The first round with the highest ARI, counted from 0; None where it never rises above 0."""
    values = [record.ari or 0.0 for record in records]
    return float(values.index(max(values))) if max(values) > 1e-9 else None


def _optimal_round(records: Sequence[Record]) -> float | None:
    """The first round, counted from 0, in which the clusters are the planted groups."""
    return next((float(r.round) for r in records if (r.ari or 0.0) >= OPTIMAL), None)


def _pure_round(records: Sequence[Record]) -> float | None:
    """How many rounds it took until purity first was 0.9."""
    return next((r.round + 1.0 for r in records if (r.purity or 0.0) >= 0.9), None)


def _accurate_round(records: Sequence[Record]) -> float | None:
    """How many rounds it took until accuracy first was 0.8."""
    return next((r.round + 1.0 for r in records if (r.accuracy or 0.0) >= 0.8), None)


def _separation(records: Sequence[Record]) -> float | None:
    """The round, counted from 1, in which FLACC's entities went their own ways."""
    return next((r.round + 1.0 for r in records if r.measures.get("separated")), None)


def _rank(folder: RunFolder) -> float:
    """How many singular values come before the largest gap."""
    return float(largest_gap(singular_values(load(folder.path).profile, folder.experiment.seed)))


OF_RECORDS: Mapping[str, Callable[[Record], float | None]] = {
    "accuracy": lambda record: _percent(record.accuracy),
    "worst": lambda record: _percent(record.worst),
    "loss": lambda record: record.loss,
    "nmse": lambda record: _decibels(record.loss),
    "ari": lambda record: record.ari,
    "purity": lambda record: record.purity,
    "clusters": lambda record: record.num_clusters,
    "best_cross": lambda record: record.measures.get("best_cross"),
}

OF_COURSES: Mapping[str, Callable[[Sequence[Record]], float | None]] = {
    "peak_round": _peak_round,
    "optimal_round": _optimal_round,
    "pure_round": _pure_round,
    "accurate_round": _accurate_round,
    "separation": _separation,
}

OF_RUNS: Mapping[str, Callable[[RunFolder], float | None]] = {"rank": _rank}

TITLES: Mapping[str, str] = {
    "accuracy": "accuracy, %",
    "worst": "worst client, %",
    "loss": "loss",
    "nmse": "NMSE, dB",
    "ari": "ARI",
    "purity": "purity",
    "clusters": "clusters",
    "best_cross": "α cross, min",
    "peak_round": "t of the highest ARI",
    "optimal_round": "t of ARI 1",
    "pure_round": "rounds to purity 0.9",
    "accurate_round": "rounds to accuracy 0.8",
    "separation": "round of separation",
    "saved_pure_round": "rounds to purity 0.9 saved, %",
    "saved_accurate_round": "rounds to accuracy 0.8 saved, %",
    "rank": "singular values before the largest gap",
}

DIGITS: Mapping[str, int] = {
    "saved_pure_round": 0,
    "saved_accurate_round": 0,
    "accuracy": 1,
    "worst": 1,
    "loss": 4,
    "nmse": 2,
    "best_cross": 3,
}
"""Decimals of a mean in tables; two for the rest."""

LOWER_IS_BETTER = {
    *("loss", "nmse", "peak_round", "optimal_round", "pure_round", "accurate_round"),
}

KNOWN = frozenset({*OF_RECORDS, *OF_COURSES, *OF_RUNS, *(n for n in TITLES if n[:6] == "saved_")})
"""All measures by name."""
