"""How good a clustering and its models are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.algorithms.base import Algorithm, S, Served
from umbel.client.work import Evaluation, MixtureEvaluation
from umbel.flow import Flow, Request, Rows
from umbel.server.ask import Context
from umbel.summary import in_short


def purity(groups: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Share of clients in the largest group of their cluster (Lin et al. 2024, III-A.3)."""
    return float(_together(groups, labels).max(axis=0).sum() / len(labels))


def adjusted_rand_index(groups: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """1 where clusters and groups are the same, about 0 for a random assignment.

    Hubert & Arabie 1985: the share of pairs of clients that are together in both, less what chance
    gives, of the most there can be, less the same.
    """
    table = _together(groups, labels)
    both, by_group, by_label = map(_pairs, (table, table.sum(1), table.sum(0)))
    all_pairs = len(labels) * (len(labels) - 1) // 2
    # In whole numbers, whose only rounding is the last division.
    above = 2 * (all_pairs * both - by_group * by_label)
    below = all_pairs * (by_group + by_label) - 2 * by_group * by_label
    return above / below if below else 1.0


def normalised_mutual_information(groups: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """1 where clusters and groups are the same, 0 where they have nothing to do with each other.

    Twice the mutual information, in units of the sum of both entropies.
    """
    table = _together(groups, labels) / len(labels)
    by_group, by_label = table.sum(1), table.sum(0)
    if len(by_group) == 1 and len(by_label) == 1:
        return 1.0
    some = table > 0
    apart = np.outer(by_group, by_label)[some]
    mutual = float((table[some] * np.log(table[some] / apart)).sum())
    entropies = -float((by_group * np.log(by_group)).sum() + (by_label * np.log(by_label)).sum())
    return min(1.0, max(0.0, 2 * mutual / entropies))


def _together(groups: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many clients each pair of a group and a cluster shares; no row and no column is empty."""
    (kinds, of), (names, in_) = (np.unique(a, return_inverse=True) for a in (groups, labels))
    table = np.zeros((len(kinds), len(names)), dtype=np.int64)
    np.add.at(table, (of, in_), 1)
    return table


def _pairs(counts: NDArray[np.int64]) -> int:
    """How many pairs can be made within each of the counts, together."""
    return int((counts * (counts - 1) // 2).sum())


@dataclass(frozen=True, kw_only=True)
class ClientScores:
    """What each client gets: its cluster, and how that model does on its test examples."""

    clusters: NDArray[np.int64]  # (M,) named 0 to K-1 in order of their first clients
    models: Rows  # the model of each client's cluster
    loss: NDArray[np.float64]  # (M,) NaN for a client without test examples or answer
    accuracy: NDArray[np.float64]  # (M,) likewise
    num_examples: NDArray[np.int64]  # (M,) test examples
    labels: NDArray[np.int64]  # (M,) the clusters as the method's state calls them
    served: Served  # what was evaluated: personal models or mixtures, where clients use such

    __repr__ = in_short


def score(algorithm: Algorithm[S], state: S, ctx: Context) -> Flow[ClientScores]:
    """Evaluate what every client is served, on its own test examples."""
    # An evaluation can do without anybody's answer.
    everyone = replace(ctx.everyone, optional=True)
    served = yield from algorithm.serve(state, everyone)
    replies = yield _evaluation(served, everyone)
    test_examples = replies.columns["num_examples"]
    order = replies.clients.numpy()
    size = ctx.num_clients
    loss, accuracy = np.full(size, np.nan), np.full(size, np.nan)
    num_examples = np.zeros(size, dtype=np.int64)
    loss[order] = (replies.columns["loss"] / test_examples).numpy()
    accuracy[order] = (replies.columns["right"] / test_examples).numpy()
    num_examples[order] = test_examples.numpy()
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
    )


def _evaluation(served: Served, ctx: Context) -> Request:
    """Ask for the test loss and accuracy of what clients are served: methods can't."""
    if served.weights is None:
        return ctx.request(Evaluation(), theta=served.models)
    weights = Rows(served.weights, torch.arange(len(served.weights)))
    return ctx.request(MixtureEvaluation(), {"models": served.models.table}, weights=weights)


def in_order_of_appearance(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same clusters named 0 to K-1 in order of their first clients."""
    _, first, names = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[names]
