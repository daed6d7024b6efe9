"""How well clusters agree with what is known of the clients, such as a person or an airport."""

from __future__ import annotations

from collections.abc import Sequence

from umbel.runs.client_rows import Client


def agreement(clients: Sequence[Client]) -> dict[str, float]:
    """The adjusted mutual information of the clusters with each attribute.

    It is 1 where they are the same, and about 0 for clusters drawn by chance (Vinh, Epps & Bailey
    2010). An attribute that is the same for all clients, or different for each, tells nothing, and
    is left out.
    """
    names = dict.fromkeys(name for client in clients for name in client.attributes)
    found = {}
    for name in names:
        known = [client for client in clients if client.attributes.get(name)]
        values = [client.attributes[name] for client in known]
        if 1 < len(set(values)) < len(values):
            found[name] = adjusted_mutual_information(values, [client.cluster for client in known])
    return found


def adjusted_mutual_information(values: Sequence[str], clusters: Sequence[int]) -> float:
    """1 where clusters and values are the same, about 0 for a random assignment."""
    from sklearn.metrics import adjusted_mutual_info_score

    score = float(adjusted_mutual_info_score(list(values), list(clusters)))
    return 0.0 if abs(score) < 1e-12 else score
