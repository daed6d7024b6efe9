"""The tree of clients within their clusters, and of the clusters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umbel.report.figures.charts import Branch


@dataclass(frozen=True)
class Tree:
    """Clients joined in pairs until one tree is left."""

    order: NDArray[np.int64]  # (N,) the leaves from left to right
    joined: tuple[tuple[int, int, float], ...]  # of two trees, and at what height; leaves first


def ordered_tree(distance: NDArray[np.float64], clusters: NDArray[np.int64]) -> Tree:
    """Join by mean distance (N, N), first within clusters, then the clusters.

    A distance that is not known counts as the largest that is. Where clusters are nearer to each
    other than their members are, a bracket is below those that it joins.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    if len(distance) < 2:
        return Tree(np.arange(len(distance)), ())
    known = np.clip(distance[np.isfinite(distance)], 0, None)
    largest = float(known.max()) if len(known) else 1.0
    whole = np.where(np.isfinite(distance), distance, largest)
    whole = np.clip((whole + whole.T) / 2, 0, None)
    # All distances between clusters are raised by the same amount, so that clusters join last.
    apart = np.not_equal.outer(clusters, clusters)
    raised = 2 * largest + 1
    whole += raised * apart
    np.fill_diagonal(whole, 0)
    joins = linkage(squareform(whole, checks=False), "average", optimal_ordering=len(whole) <= 100)
    heights = np.where(joins[:, 2] >= raised, joins[:, 2] - raised, joins[:, 2])
    joined = [(int(a), int(b), float(h)) for (a, b), h in zip(joins[:, :2], heights, strict=True)]
    return Tree(np.asarray(leaves_list(joins), dtype=np.int64), tuple(joined))


def brackets(tree: Tree) -> tuple[Branch, ...]:
    """The brackets to draw for a tree, next to its leaves at distances of 1."""
    place = {int(leaf): float(row) for row, leaf in enumerate(tree.order)}
    height = dict.fromkeys(place, 0.0)
    branches = []
    for number, (a, b, top) in enumerate(tree.joined, start=len(tree.order)):
        feet = (place[a], place[a], place[b], place[b])
        branches.append(Branch(feet, (height[a], top, top, height[b])))
        place[number], height[number] = (place[a] + place[b]) / 2, top
    return tuple(branches)
