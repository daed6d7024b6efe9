"""Metrics of a run: their names in records and tables, and their means over clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import numpy as np

from umbel.checks import UsageError, check
from umbel.client.metrics import metric, short
from umbel.run.scores import ClientScores

TAKEN = (
    *("round", "loss", "accuracy", "worst", "accuracy_std", "weighted_accuracy"),
    *("num_clusters", "num_models", "ari", "purity", "nmi", "bytes_down", "bytes_up"),
    *("gradient_evaluations", "loss_evaluations", "clustering_seconds"),
    *("seconds", "client_seconds", "missing", "refused", "bounded", "measures", "seal"),
    *("tuned_epochs", "tuned_weight", "tuned_share", "untuned_loss", "untuned_accuracy"),
    *("tuned_validation_loss", "tuned_validation_accuracy"),
    *("client", "group", "cluster", "examples", "test_examples"),
    *("folder", "name", "algorithm", "seed", "finished", "rounds", "rounds_planned"),
    *("megabytes_down", "megabytes_up", "worst_tenth", "spread"),
    *("worse_than_alone", "surely_worse_than_alone"),
    *("worse_than_one_model", "surely_worse_than_one_model"),
)
"""Names that records and tables already use."""

LARGEST_FLOAT = 10**300
"""Whole numbers of smaller magnitude can be stored as floats."""

FREE = "a free name: records use it already, so rename it"


def names_of(experiment: Any) -> list[str]:
    """The names of an experiment's metrics."""
    return [short(name) for name in experiment.metrics or ()]


def judged(measures: Mapping[str, float | None], name: str) -> float | None:
    """A metric of a round: on validation examples if there are any, otherwise on test examples."""
    value = measures.get(f"validation_{name}")
    return measures.get(name) if value is None else value


def is_free(name: object) -> bool:
    """Return True for a name that records and tables use for nothing else."""
    named = isinstance(name, str) and bool(name)
    return named and name not in TAKEN and not str(name).startswith("validation_")


def check_names(names: Sequence[str]) -> None:
    """Raise `UsageError` unless these metrics have different names. Nothing is imported."""
    for name in names:
        metric(name)
        check(is_free(short(name)), "metrics", name, FREE)
    called = [short(name) for name in names]
    twice = sorted({name for name in called if called.count(name) > 1})
    if twice:
        raise UsageError(f"metrics: {', '.join(twice)}: named twice")


def means(scores: ClientScores, prefix: str = "") -> Mapping[str, float | None]:
    """The mean of each metric over the clients for which it is defined; None if for none."""
    known = {name: values[~np.isnan(values)] for name, values in scores.metrics.items()}
    return {f"{prefix}{n}": float(v.mean()) if len(v) else None for n, v in known.items()}


def as_measures(measured: Any, metrics: Sequence[str]) -> Mapping[str, float]:
    """The result of `measure` as plain numbers; None, for unknown values, becomes NaN.

    `metrics` are the names of the run's metrics. Raises `UsageError` for names that a record uses
    for something else, and for values that are not numbers.
    """
    kind = type(measured).__name__
    check(isinstance(measured, Mapping), "measure", kind, "a mapping from names to numbers")
    numbers: dict[str, float] = {}
    for name, value in measured.items():
        check(isinstance(name, str) and name.isprintable(), "measure", name, "a text of one line")
        check(is_free(name) and name not in metrics, "measure", name, FREE)
        plain = value.item() if getattr(value, "shape", None) == () else value
        fine = plain is None or isinstance(plain, float)
        fine |= isinstance(plain, int) and abs(plain) < LARGEST_FLOAT
        check(fine, f"measure: {name}", _said(plain), "a number")
        numbers[name] = nan if plain is None else plain
    return numbers


def _said(value: object) -> str:
    if isinstance(value, str):
        return value
    shape = f" {tuple(value.shape)}" if hasattr(value, "shape") else ""
    return f"{getattr(value, 'dtype', type(value).__name__)}{shape}"
