"""Scores of the models that clients are served, and of the clustering."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.algorithms.base import Algorithm, S, Served
from umbel.client.metrics import short
from umbel.client.work import Evaluation, MixtureEvaluation
from umbel.flow import Flow, Request, Rows, as_flow
from umbel.run.returned_values import as_served
from umbel.server.ask import Context
from umbel.server.numbering import in_order_of_appearance
from umbel.server.shares import bounded_weights
from umbel.summary import in_short

Judged: TypeAlias = Literal["validation", "test"]
"""The examples that models are evaluated on."""


def purity(groups: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Share of clients in the largest group of their cluster (Lin et al. 2024, III-A.3)."""
    clusters, _, both = _contingency(labels, groups)
    largest = np.zeros(clusters.max() + 1, dtype=np.int64)
    np.maximum.at(largest, clusters, both)
    return float(largest.sum() / len(labels))


def adjusted_rand_index(groups: NDArray[Any], labels: NDArray[np.int64]) -> float:
    """Agreement of clusters and groups: 1 if they are the same, about 0 for random clusters.

    Computed from the numbers of pairs of clients (Hubert & Arabie 1985), in whole numbers up to the
    last division, as scikit-learn does, whose import takes longer than a short run.
    """
    rows, columns, both = _contingency(groups, labels)
    every = len(labels) * (len(labels) - 1)  # ordered pairs of clients
    together, grouped, clustered = (
        int((sizes**2).sum()) - len(labels)  # pairs with equal group and cluster, group, cluster
        for sizes in (both, _sums(rows, both), _sums(columns, both))
    )
    if together == grouped == clustered:
        return 1.0
    apart, mixed = grouped - together, clustered - together
    neither = every - together - apart - mixed
    chance = grouped * (apart + neither) + clustered * (mixed + neither)
    return 2.0 * (together * neither - apart * mixed) / chance


def normalised_mutual_information(groups: NDArray[Any], labels: NDArray[np.int64]) -> float:
    """Agreement of clusters and groups: 1 if they are the same, 0 if they are independent.

    The mutual information by the mean of the two entropies: the sum of n_ij / N log(N n_ij/a_i b_j)
    over the cells n_ij of the contingency table, whose rows add up to a_i and columns to b_j.
    """
    rows, columns, both = _contingency(groups, labels)
    a, b, total = _sums(rows, both), _sums(columns, both), np.log(len(labels))
    if len(a) == len(b) == 1:
        return 1.0
    share, expected = both / len(labels), np.log(a[rows] * b[columns]) - total - total
    terms = share * (np.log(both) - total) - share * expected
    noise = np.finfo(np.float64).eps
    mutual = np.where(abs(terms) < noise, 0.0, terms).sum()
    entropies = [-(n / len(labels) * (np.log(n) - total)).sum() for n in (a, b)]
    return float(mutual / np.mean(entropies)) if mutual > noise else 0.0


def _contingency(
    rows: NDArray[Any], columns: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Row, column and number of clients of each cell that has any; values may be of any kind."""
    (_, i), (names, j) = (np.unique(each, return_inverse=True) for each in (rows, columns))
    cells, both = np.unique(i * len(names) + j, return_counts=True)
    return cells // len(names), cells % len(names), both


def _sums(places: NDArray[np.int64], both: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sums of the rows, or of the columns, of a contingency table."""
    return np.bincount(places, both).astype(np.int64)  # exact: far fewer than 2**53 clients


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The choice of each client in fine-tuning, and the scores of its model before."""

    epochs: NDArray[np.int64]  # (M,) that the client chose; 0: it keeps what it is served
    weight: NDArray[np.float64]  # (M,) of the tuned model, in a mean with the served one
    loss: NDArray[np.float64]  # (M,) of the served model, on test examples; NaN: not known
    accuracy: NDArray[np.float64]  # (M,) likewise
    validation_loss: NDArray[np.float64]  # (M,) of what was chosen; NaN: nothing to choose by
    validation_accuracy: NDArray[np.float64]  # (M,) likewise

    __repr__ = in_short

    def measures(self) -> dict[str, float]:
        """Return the measures for a record: means over the clients for which they are known."""
        means = {
            "untuned_loss": self.loss,
            "untuned_accuracy": self.accuracy,
            "tuned_validation_loss": self.validation_loss,
            "tuned_validation_accuracy": self.validation_accuracy,
        }
        known = {name: values[~np.isnan(values)] for name, values in means.items()}
        share = {"tuned_share": float((self.epochs > 0).mean())}
        return share | {name: float(v.mean()) for name, v in known.items() if len(v)}


@dataclass(frozen=True, kw_only=True)
class ClientScores:
    """Each client's cluster, and the scores of its served model on its examples of a split."""

    clusters: NDArray[np.int64]  # (M,) named 0 to K-1 in order of their first clients
    models: Rows  # the model of each client's cluster
    loss: NDArray[np.float64]  # (M,) NaN for a client without such examples or answer
    accuracy: NDArray[np.float64]  # (M,) likewise
    num_examples: NDArray[np.int64]  # (M,) of that split
    labels: NDArray[np.int64]  # (M,) the clusters as the method's state calls them
    served: Served  # what was evaluated: personal models or mixtures, where clients use such
    tuning: Tuning | None = None  # where clients tuned what the method serves
    #: (M,) by name, likewise
    metrics: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    __repr__ = in_short

    def among(self, clients: NDArray[np.int64], count: int) -> ClientScores:
        """The scores if these clients (M,) are some of `count`: others are in cluster -1."""
        found: ClientScores = _wide(self, clients, count)
        others = np.setdiff1d(np.arange(count), clients)
        found.clusters[others] = -1
        return found


def _wide(value: Any, clients: NDArray[np.int64], count: int) -> Any:
    """Values (M,) for `count` clients, of whom these are known: NaN or 0 for the others."""
    if isinstance(value, np.ndarray):
        wide = np.full(count, np.nan if value.dtype.kind == "f" else 0, dtype=value.dtype)
        wide[clients] = value
        return wide
    if isinstance(value, Tensor):
        return value.new_zeros(count, *value.shape[1:]).index_copy(
            0, torch.from_numpy(clients), value
        )
    if isinstance(value, Rows):
        return Rows(value.table, _wide(value.index, clients, count))
    if isinstance(value, dict):
        return {name: _wide(each, clients, count) for name, each in value.items()}
    if isinstance(value, ClientScores | Served | Tuning):
        return replace(value, **_wide(dict(vars(value)), clients, count))
    return value


def score(
    algorithm: Algorithm[S],
    state: S,
    ctx: Context,
    on: Judged = "test",
    metrics: tuple[str, ...] = (),
) -> Flow[ClientScores]:
    """Evaluate the model that each client is served, on its own test or validation examples."""
    # An evaluation can do without anybody's answer.
    everyone = replace(ctx.everyone, optional=True)
    returned = yield from as_flow(algorithm.serve(state, everyone), "serve")
    served = as_served(returned, state, everyone)
    replies = yield _evaluation(served, everyone, on, metrics)
    counts = replies.columns["num_examples"]
    order = replies.clients.numpy()
    size = ctx.num_clients
    loss, accuracy = np.full(size, np.nan), np.full(size, np.nan)
    num_examples = np.zeros(size, dtype=np.int64)
    # Clients report sums over examples: 0 / 0, without an example, is NaN.
    loss[order] = (replies.columns["loss"] / counts).numpy()
    accuracy[order] = (replies.columns["right"] / counts).numpy()
    num_examples[order] = counts.numpy()
    measured = {short(name): np.full(size, np.nan) for name in metrics}
    for name in metrics:
        measured[short(name)][order] = replies.columns[name].numpy()
    clusters = in_order_of_appearance(served.labels.numpy())
    models = served.adapted_from or served.models
    labels = served.labels.numpy()
    return ClientScores(
        clusters=clusters,
        models=models,
        loss=loss,
        accuracy=accuracy,
        num_examples=num_examples,
        labels=labels,
        served=served,
        metrics=measured,
    )


def _evaluation(served: Served, ctx: Context, on: Judged, metrics: tuple[str, ...]) -> Request:
    """Make the request for loss, accuracy and metrics, which methods themselves can't ask for."""
    if served.weights is None:
        return ctx.request(served.asked(Evaluation(on, metrics)), theta=served.models)
    weights, models = Rows(served.weights, torch.arange(len(served.weights))), served.models.table
    return ctx.request(MixtureEvaluation(on, metrics), {"models": models}, weights=weights)


VALIDATION = "validation_"
"""Beginning of the names of measures on validation examples."""


def quality_of(scores: ClientScores, share: float = 1.0) -> dict[str, Any]:
    """Return loss and accuracies over clients; no client weighs more than `share` in a mean."""
    # Clients without test examples, or whose evaluation was not usable, do not count.
    known = ~np.isnan(scores.loss)
    loss, accuracy = scores.loss[known], scores.accuracy[known]
    if not known.any():
        return {}
    said = ~np.isnan(accuracy)
    if not said.any():
        return {"loss": number_or_none(loss.mean())}
    accuracy, counts = accuracy[said], scores.num_examples[known][said]
    # sum_i n_i accuracy_i / sum_i n_i, where no n_i is more than `share` of the sum.
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
    """Return the measures of clients' fine-tuning; none if there was none."""
    said = {} if scores.tuning is None else scores.tuning.measures()
    return {name: number_or_none(value) for name, value in said.items()}


def validation_of(scores: ClientScores) -> dict[str, Any]:
    """Loss and accuracy over clients, named as those on validation examples."""
    known = quality_of(scores)
    return {f"{VALIDATION}{n}": known[n] for n in ("loss", "accuracy") if n in known}


def clustering_of(clusters: NDArray[np.int64], groups: NDArray[np.int64] | None) -> dict[str, Any]:
    """Return the number of clusters, and their agreement with the planted groups, if known."""
    if not len(clusters):  # nobody is there
        return {}
    agreement = {} if groups is None else _agreement(groups, clusters)
    return {"num_clusters": len(np.unique(clusters)), **agreement}


def _agreement(groups: NDArray[np.int64], clusters: NDArray[np.int64]) -> dict[str, float]:
    return _agreed(*(labels.astype(np.int64).tobytes() for labels in (groups, clusters)))


# Clusters are mostly those of the round before: remembering the last answer saves most calls. Bytes
# are hashable, as the cache needs.
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


def of_honest(
    accuracy: NDArray[np.float64], attackers: NDArray[np.int64], groups: NDArray[np.int64] | None
) -> dict[str, float]:
    """Mean accuracy of the clients that don't attack, and of those in the smallest group."""
    honest = ~np.isnan(accuracy)
    honest[attackers] = False
    if not honest.any():
        return {}
    found = {"honest_accuracy": float(accuracy[honest].mean())}
    if groups is not None:
        names, sizes = np.unique(groups, return_counts=True)
        theirs = honest & (groups == names[sizes.argmin()])
        if theirs.any():
            found["smallest_group_accuracy"] = float(accuracy[theirs].mean())
    return found
