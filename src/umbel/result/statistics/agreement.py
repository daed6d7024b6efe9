"""Agreement of clusters with an attribute of the clients, such as a person or an airport."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from umbel.folder.clients_file import Client
from umbel.run import scores

Score: TypeAlias = Callable[[Sequence[str], Sequence[int]], float]
"""Agreement of clusters with values of the same clients."""


def adjusted_mutual_information(values: Sequence[str], clusters: Sequence[int]) -> float:
    """Compute agreement by information: 1 if both are the same, about 0 by chance."""
    from sklearn.metrics import adjusted_mutual_info_score

    score = float(adjusted_mutual_info_score(list(values), list(clusters)))
    return 0.0 if abs(score) < 1e-12 else score


def adjusted_rand_index(values: Sequence[str], clusters: Sequence[int]) -> float:
    """Compute agreement by pairs of clients: 1 if both are the same, about 0 by chance."""
    return scores.adjusted_rand_index(np.asarray(values), np.asarray(clusters))


def agreement(
    clients: Sequence[Client], score: Score = adjusted_mutual_information
) -> dict[str, float]:
    """The agreement of the clusters with each attribute.

    By default it is the adjusted mutual information, which is 1 where they are the same, and about
    0 for clusters drawn by chance (Vinh, Epps & Bailey 2010). An attribute that is the same for all
    clients, or different for each, tells nothing, and is left out.
    """
    names = dict.fromkeys(name for client in clients for name in client.attributes)
    found = {}
    for name in names:
        known = [client for client in clients if client.attributes.get(name)]
        values = [client.attributes[name] for client in known]
        if 1 < len(set(values)) < len(values):
            found[name] = score(values, [client.cluster for client in known])
    return found
