"""Measures of a finished run, as in the papers' tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log10

from umbel.folder.run_folder import RunFolder
from umbel.result.run import load
from umbel.run.records import Record
from umbel.server.cluster_count import largest_gap, singular_values

OPTIMAL = 1.0 - 1e-9
"""From this ARI on, the clusters count as the planted groups."""

GOAL = 0.6
"""The accuracy up to which costs are counted (Kim et al. 2024, Fig. 2)."""

Rounds = Sequence[Record]
Value = float | None


@dataclass(frozen=True, kw_only=True)
class PublishedMeasure:
    """The title of a column of numbers, its format, and the function that computes it."""

    title: str
    digits: int = 2  # decimals of a mean in tables
    lower_is_better: bool = False
    of_record: Callable[[Record], Value] | None = None
    of_rounds: Callable[[Rounds], Value] | None = None
    of_run: Callable[[RunFolder], Value] | None = None


def measured(name: str, folder: RunFolder, records: Rounds) -> Value:
    """The measure of this name for a finished run; `name@5` is after 5 rounds. None: not measured.

    Raises `KeyError` for a name that is not known.
    """
    _, _, at = name.partition("@")
    asked = named(name)
    if asked.of_run:
        return asked.of_run(folder)
    if asked.of_rounds:
        return asked.of_rounds(records)
    return None if at and int(at) > len(records) else series(name, records)[int(at or 0) - 1]


def series(name: str, records: Rounds) -> list[Value]:
    """A measure of records after every round."""
    of = named(name).of_record
    assert of is not None
    return [of(record) for record in records]


def named(name: str) -> PublishedMeasure:
    """The measure of this name, without its round."""
    return MEASURES[name.partition("@")[0]]


def title(name: str) -> str:
    """The title of a measure in tables."""
    _, _, at = name.partition("@")
    return named(name).title + (f" after {at} rounds" if at else "")


def _percent(value: Value) -> Value:
    return None if value is None else 100 * value


def _decibels(value: Value) -> Value:
    return None if not value else 10 * log10(value)


def _peak_round(records: Rounds) -> Value:
    """The first round with the highest ARI, counted from 0; None if it is never above 0."""
    values = [record.ari or 0.0 for record in records]
    return float(values.index(max(values))) if max(values) > 1e-9 else None


def _first(reached: Callable[[Record], object], counted_from: int = 1) -> Callable[[Rounds], Value]:
    """The first round in which the value is reached; None if it never is."""
    return lambda records: next(
        (float(r.round + counted_from) for r in records if reached(r)), None
    )


def _sent(folder: RunFolder, records: Rounds) -> float:
    """The models that a client gets and sends in these rounds."""
    result = load(folder.path)
    size = result.state.models[0].nbytes * len(result.clusters)
    return sum(record.bytes_down + record.bytes_up for record in records) / size


def _to_goal(records: Rounds) -> Rounds | None:
    """The rounds up to the first with an accuracy of 0.6; None without one."""
    reached = (n for n, record in enumerate(records, 1) if (record.accuracy or 0.0) >= GOAL)
    goal = next(reached, None)
    return None if goal is None else records[:goal]


def _sent_to_goal(folder: RunFolder) -> Value:
    needed = _to_goal(folder.records())
    return None if needed is None else _sent(folder, needed)


def _seconds_to_goal(folder: RunFolder) -> Value:
    needed = _to_goal(folder.records())
    return None if needed is None else sum(record.seconds for record in needed)


def _rank(folder: RunFolder) -> float:
    """The number of singular values before the largest gap."""
    return float(largest_gap(singular_values(load(folder.path).profile, folder.experiment.seed)))


MEASURES: Mapping[str, PublishedMeasure] = {
    "accuracy": PublishedMeasure(
        title="accuracy, %", digits=1, of_record=lambda r: _percent(r.accuracy)
    ),
    "worst": PublishedMeasure(
        title="worst client, %", digits=1, of_record=lambda r: _percent(r.worst)
    ),
    "loss": PublishedMeasure(
        title="loss", digits=4, lower_is_better=True, of_record=lambda r: r.loss
    ),
    "nmse": PublishedMeasure(
        title="NMSE, dB", lower_is_better=True, of_record=lambda r: _decibels(r.loss)
    ),
    "ari": PublishedMeasure(title="ARI", of_record=lambda r: r.ari),
    "purity": PublishedMeasure(title="purity", of_record=lambda r: r.purity),
    "clusters": PublishedMeasure(title="clusters", of_record=lambda r: r.num_clusters),
    "best_cross": PublishedMeasure(
        title="α cross, min", digits=3, of_record=lambda r: r.measures.get("best_cross")
    ),
    "peak_round": PublishedMeasure(
        title="t of the highest ARI", lower_is_better=True, of_rounds=_peak_round
    ),
    "optimal_round": PublishedMeasure(
        title="t of ARI 1",
        lower_is_better=True,
        of_rounds=_first(lambda r: (r.ari or 0.0) >= OPTIMAL, counted_from=0),
    ),
    "pure_round": PublishedMeasure(
        title="rounds to purity 0.9",
        lower_is_better=True,
        of_rounds=_first(lambda r: (r.purity or 0.0) >= 0.9),
    ),
    "accurate_round": PublishedMeasure(
        title="rounds to accuracy 0.8",
        lower_is_better=True,
        of_rounds=_first(lambda r: (r.accuracy or 0.0) >= 0.8),
    ),
    "separation": PublishedMeasure(  # FLACC separates its entities
        title="round of separation", of_rounds=_first(lambda r: r.measures.get("separated"))
    ),
    "mean_ari": PublishedMeasure(
        title="mean ARI of all rounds",
        of_rounds=lambda records: sum(record.ari or 0.0 for record in records) / len(records),
    ),
    "sent_in_two": PublishedMeasure(
        title="models to and from a client in two rounds",
        lower_is_better=True,
        of_run=lambda folder: _sent(folder, folder.records()[:2]),
    ),
    "sent_to_goal": PublishedMeasure(
        title="models to and from a client until accuracy 0.6",
        digits=0,
        lower_is_better=True,
        of_run=_sent_to_goal,
    ),
    "seconds_to_goal": PublishedMeasure(
        title="seconds of rounds until accuracy 0.6",
        lower_is_better=True,
        of_run=_seconds_to_goal,
    ),
    "rank": PublishedMeasure(title="singular values before the largest gap", of_run=_rank),
    # Computed in the comparison with the paper, from the rounds of a row and of the baseline.
    "saved_pure_round": PublishedMeasure(title="rounds to purity 0.9 saved, %", digits=0),
    "saved_accurate_round": PublishedMeasure(title="rounds to accuracy 0.8 saved, %", digits=0),
}
