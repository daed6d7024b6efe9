"""Metrics of a run: what records and tables call them, and their means over clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from umbel.checks import UsageError, check
from umbel.client.metrics import metric, short
from umbel.runs.scores import ClientScores

TAKEN = (
    *("round", "loss", "accuracy", "worst", "accuracy_std", "weighted_accuracy"),
    *("num_clusters", "num_models", "ari", "purity", "nmi", "bytes_down", "bytes_up"),
    *("seconds", "client_seconds", "missing", "refused", "bounded", "measures", "seal"),
    *("tuned_epochs", "tuned_weight", "tuned_share", "untuned_loss", "untuned_accuracy"),
    *("tuned_validation_loss", "tuned_validation_accuracy"),
    *("client", "group", "cluster", "examples", "folder", "name", "algorithm", "seed"),
)
"""Names that records and tables have for something else."""


def names_of(experiment: Any) -> list[str]:
    """What the metrics of an experiment are called."""
    return [short(name) for name in experiment.metrics or ()]


def judged(measures: Mapping[str, float | None], name: str) -> float | None:
    """A metric of a round on validation examples, where there are such, or else on test ones."""
    value = measures.get(f"validation_{name}")
    return measures.get(name) if value is None else value


def check_names(names: Sequence[str]) -> None:
    """Raise `UsageError` unless these are metrics that can be told apart. Nothing is imported."""
    for name in names:
        metric(name)
        free = short(name) not in TAKEN and not short(name).startswith("validation_")
        check(free and bool(short(name)), "metrics", name, "a name that is free: call it otherwise")
    called = [short(name) for name in names]
    twice = sorted({name for name in called if called.count(name) > 1})
    if twice:
        raise UsageError(f"metrics: {', '.join(twice)}: named twice")


def means(scores: ClientScores, prefix: str = "") -> Mapping[str, float | None]:
    """The mean of each metric over the clients for which it is defined; None if for none."""
    known = {name: values[~np.isnan(values)] for name, values in scores.metrics.items()}
    return {f"{prefix}{n}": float(v.mean()) if len(v) else None for n, v in known.items()}
