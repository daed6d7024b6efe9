"""Scores and clusters in the form of a record's fields."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.run.scores import (
    ClientScores,
    adjusted_rand_index,
    normalised_mutual_information,
    purity,
)
from umbel.server.shares import bounded_weights

VALIDATION = "validation_"
"""How the names of what is measured on validation examples begin."""


def quality_of(scores: ClientScores, share: float = 1.0) -> dict[str, Any]:
    """Loss and accuracies over clients, of which one weighs no more than `share`."""
    known = ~np.isnan(scores.loss)
    loss, accuracy = scores.loss[known], scores.accuracy[known]
    if not known.any():
        return {}
    said = ~np.isnan(accuracy)
    if not said.any():
        return {"loss": number_or_none(loss.mean())}
    accuracy, counts = accuracy[said], scores.num_examples[known][said]
    weights = bounded_weights(torch.from_numpy(counts), share).numpy()
    weighted = np.average(accuracy, weights=weights)
    return {
        "loss": number_or_none(loss.mean()),
        "accuracy": number_or_none(accuracy.mean()),
        "worst": number_or_none(accuracy.min()),
        "accuracy_std": number_or_none(accuracy.std()),
        "weighted_accuracy": number_or_none(weighted),
    }


def tuning_of(scores: ClientScores) -> dict[str, float | None]:
    """What clients' tuning adds to the measures."""
    said = {} if scores.tuning is None else scores.tuning.measures()
    return {name: number_or_none(value) for name, value in said.items()}


def validation_of(scores: ClientScores) -> dict[str, Any]:
    """Loss and accuracy over clients, named as those on validation examples."""
    known = quality_of(scores)
    return {f"{VALIDATION}{n}": known[n] for n in ("loss", "accuracy") if n in known}


def clustering_of(clusters: NDArray[np.int64], groups: NDArray[np.int64] | None) -> dict[str, Any]:
    """How many clusters there are, and how they agree with the planted groups, if known."""
    agreement = {} if groups is None else _agreement(groups, clusters)
    return {"num_clusters": len(np.unique(clusters)), **agreement}


def _agreement(groups: NDArray[np.int64], clusters: NDArray[np.int64]) -> dict[str, float]:
    return _agreed(*(labels.astype(np.int64).tobytes() for labels in (groups, clusters)))


# Clusters are mostly those of the round before.
@lru_cache(maxsize=1)
def _agreed(groups: bytes, clusters: bytes) -> dict[str, float]:
    labels = [np.frombuffer(each, dtype=np.int64) for each in (groups, clusters)]
    return {
        "ari": adjusted_rand_index(*labels),
        "purity": purity(*labels),
        "nmi": normalised_mutual_information(*labels),
    }


def number_or_none(value: float | None) -> float | None:
    """The value, or None for NaN and infinity, which JSON does not know."""
    return float(value) if value is not None and math.isfinite(value) else None
