"""Numbers of clusters that do not depend on the order in which a clusterer finds them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from umbel.checks import check
from umbel.flow import check_numbers


def in_order_of_appearance(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Renumber clusters 0 to K-1, in order of their first clients."""
    _, first, names = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    # `first` (K,): position of each cluster's first client; its rank is the cluster's new number.
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[names]


def match_labels(new: Tensor, old: Tensor, num_clusters: int) -> Tensor:
    """Renumber new clusters so that as many clients as possible keep their old label.

    `new` (N,), `old` (N,) and the result (N,) are in 0 to K-1. It uses the Hungarian method. Raises
    `UsageError` for other labels, and if `new` and `old` are not of the same clients.

    >>> import torch
    >>> from umbel.method import match_labels
    >>> match_labels(torch.tensor([1, 1, 0]), torch.tensor([0, 0, 1]), 2)
    tensor([0, 0, 1])
    """
    from scipy.optimize import linear_sum_assignment

    for name, labels in (("new", new), ("old", old)):
        check_numbers(labels, name, num_clusters, "clusters")
    check(len(new) == len(old), "new", len(new), f"{len(old)} labels, as many as old has")
    # overlap (K, K): entry k, l counts the clients of new cluster k whose old label is l. The
    # matching with the largest sum keeps the most labels (Algorithm 3, lines 3 and 4, of Kim et al.
    # 2024).
    overlap = one_hot(new, num_clusters).T @ one_hot(old, num_clusters)
    _, names = linear_sum_assignment(overlap.numpy(), maximize=True)
    return torch.from_numpy(names).long()[new]


def match_costs(clusters: Tensor, costs: Tensor) -> Tensor:
    """Give each cluster a model of its own, so that the sum of all clients' costs is the smallest.

    `clusters` (N,) are in 0 to J-1, and costs (N, K) are those of K models for each client, with J
    at most K. Returns the model (N,) of each client. It uses the Hungarian method.

    >>> import torch
    >>> from umbel.method import match_costs
    >>> match_costs(torch.tensor([0, 1]), torch.tensor([[2.0, 50.0], [2.0, 18.0]]))
    tensor([0, 1])
    """
    from scipy.optimize import linear_sum_assignment

    num_models = costs.shape[1]
    check_numbers(clusters, "clusters", num_models, "models")
    check(len(clusters) == len(costs), "clusters", len(clusters), f"{len(costs)}, as costs has")
    # total (J, K): entry j, k is the cost of model k for all clients of cluster j.
    count = int(clusters.max()) + 1 if len(clusters) else 0
    total = costs.new_zeros(count, num_models).index_add_(0, clusters, costs)
    _, models = linear_sum_assignment(total.numpy())
    return torch.from_numpy(models).long()[clusters]
