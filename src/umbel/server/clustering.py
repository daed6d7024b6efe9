"""Functions that compute clients' similarities and distances, and labels from them.

scikit-learn takes a second to load, so it is imported only when a clustering begins. Deployed
clients, which start a process for each message, never need it.
"""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from umbel.checks import check
from umbel.client.process_locks import TURN
from umbel.server.faster_pam import faster_pam, first_medoids
from umbel.server.numbering import in_order_of_appearance
from umbel.server.shares import norms_of
from umbel.settings import argument

Metric = Literal["l1", "l2", "cosine"]
Angles = Literal["smallest", "sum"]
Linkage = Literal["complete", "average", "single", "ward"]

LARGEST_GRAM = 4000
"""The SVD is randomised for more than this many clients with more than this many values each."""

BLOCK_VALUES = 2**18
"""Number of values that are in double precision at a time; they fit in the cache of a core."""

TINY = 1e-12
"""Rows shorter than this have no direction; eigenvalues below this share of the largest are 0."""

NO_ANGLE = 1e-5
"""A smaller angle, in degrees, is the rounding error of an arc cosine near 1: it is 0."""

ALIKE, ROUNDING = 1e-7, 1e-9
"""Rows are alike if they differ by less than this share of their spread, or of their values."""

STARTS, MORE_STARTS, FEW = 20, 40, 200
"""Number of starts of k-medoids, of which the best counts, and for at most 200 rows."""

SAMPLE = 1000
"""Above this number of clients, starts of k-medoids are compared on a sample of this size."""


def inner_products(rows: Tensor, others: Tensor | None = None) -> Tensor:
    """Inner product of each of the rows (N, P) with each of the others (L, P): (N, L), in double.

    Without `others`, the inner products of all pairs of the rows. It makes no copy of the rows in
    double precision: sums are computed block by block.
    """
    # Columns of both tables that together have about BLOCK_VALUES values.
    columns = max(1, BLOCK_VALUES // max(1, len(rows) + (0 if others is None else len(others))))
    size = len(rows) if others is None else len(others)
    total = torch.zeros(len(rows), size, dtype=torch.double, device=rows.device)
    for start in range(0, rows.shape[1], columns):
        block = rows[:, start : start + columns].double()
        against = block if others is None else others[:, start : start + columns].double()
        total.addmm_(block, against.T)
    return total


def cosine_similarity(rows: Tensor) -> Tensor:
    """Cosine of all pairs of rows (N, P): (N, N), 0 for a row that is zero.

    >>> import torch
    >>> from umbel.method import cosine_similarity
    >>> cosine_similarity(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    if rows.numel() <= BLOCK_VALUES:
        unit = normalize(rows.double(), dim=1)
        return (unit @ unit.T).clamp(-1, 1)
    products = inner_products(rows)
    length = products.diagonal().sqrt().clamp(min=TINY)
    return (products / length[:, None] / length).clamp(-1, 1)


def leading_projection(rows: Tensor, rank: int, seed: int) -> Tensor:
    """Rows (N, D) projected on their leading right singular vectors: (N, R), R <= rank.

    Columns are in descending order of their singular values, which are the columns' lengths. They
    are computed from the smaller of the two Gram matrices, or by a randomised SVD if both are
    large.
    """
    rank = min(rank, *rows.shape)
    if min(rows.shape) > LARGEST_GRAM:
        from sklearn.utils.extmath import randomized_svd

        u, sigma, _ = randomized_svd(rows.numpy(), rank, n_iter=7, random_state=seed % 2**32)
        return torch.from_numpy(u * sigma).double()
    # G = U S V^T, rows on the left. Few rows: G G^T = U S^2 U^T gives U and S, and G V = U S.
    # Few columns: G^T G = V S^2 V^T gives V, and the projection is G V.
    if rows.shape[0] <= rows.shape[1]:
        return projection_by(inner_products(rows), rank)
    _, vectors = torch.linalg.eigh(inner_products(rows.T))
    leading: Tensor = vectors[:, -rank:].flip(1)
    return rows.double() @ leading


def projection_by(products: Tensor, rank: int) -> Tensor:
    """The result (N, R) of `leading_projection` for rows with these inner products (N, N)."""
    rank = min(rank, len(products))
    # `eigh` sorts eigenvalues in ascending order: the last ones lead.
    spectrum, vectors = torch.linalg.eigh(products)
    lengths = spectrum[-rank:].flip(0).clamp(min=0).sqrt()
    # The root would lift the rounding error of an eigenvalue of 0 to 1e-8 of the largest length.
    lengths = lengths.where(lengths**2 > TINY * spectrum[-1], 0)
    projected: Tensor = vectors[:, -rank:].flip(1) * lengths
    return projected


def spectral(rows: Tensor, num_clusters: int, seed: int) -> Tensor:
    """Cluster rows (N, D) by Algorithm 3 of Kim et al. 2024: labels (N,).

    It is k-means on the projections to the `num_clusters` leading singular vectors.
    """
    return k_means(leading_projection(rows, num_clusters, seed), num_clusters, seed)


def distances(rows: Tensor, others: Tensor, metric: Metric) -> Tensor:
    """Distance of each of the rows (N, P) from each of the others (L, P): (N, L).

    The cosine distance is 1 minus the cosine, and 1 for a row that is zero.
    """
    argument("metric", metric, Metric)
    if metric == "cosine":
        return (1 - _cosines(rows, others)).clamp(0, 2)  # rounding can exceed these a little
    rows, others = rows.double(), others.double()
    # Distances from inner products are faster, but rounding errors spoil small distances.
    exact = "donot_use_mm_for_euclid_dist"
    power = 1.0 if metric == "l1" else 2.0
    apart: Tensor = torch.cdist(rows, others, p=power, compute_mode=exact)
    return apart


def _cosines(rows: Tensor, others: Tensor) -> Tensor:
    if len(rows) * rows.shape[1] <= BLOCK_VALUES:
        return normalize(rows.double(), dim=1) @ normalize(others.double(), dim=1).T
    return inner_products(rows, others) / _lengths(rows)[:, None] / _lengths(others)


def _lengths(rows: Tensor) -> Tensor:
    """Return the length (N,) of each row in double precision, at least `TINY`: it is a divisor."""
    return norms_of(rows).clamp(min=TINY)


def orthonormal_bases(vectors: Tensor) -> Tensor:
    """Orthonormal bases of the column space of each matrix: (N, D, Q) -> (N, D, min(D, Q)).

    If the rank is lower, the last columns of the basis are zero.
    """
    basis, size, _ = torch.linalg.svd(vectors.double(), full_matrices=False)
    # Directions with a singular value this small are rounding errors of the client's vectors.
    independent: Tensor = size > 1e-6 * size[:, :1]
    bases: Tensor = basis * independent[:, None]
    return bases


def principal_angles(bases: Tensor, others: Tensor, measure: Angles) -> Tensor:
    """Angles in degrees between subspaces of orthonormal bases (N, D, Q), (L, D, Q): (N, L).

    The cosines of the principal angles are the singular values of U_i^T U_j (Björck & Golub 1973);
    their number is the smaller of the two dimensions. Angles of at most 1e-5 degrees are 0. A
    subspace of dimension 0 is at 90 degrees to every other.
    """
    argument("measure", measure, Angles)
    rank = (others != 0).any(1).sum(1)
    rows = []
    for basis in bases:
        cosines = torch.linalg.svdvals(basis.T @ others).clamp(max=1)  # (L, Q), in descending order
        angles = cosines.acos().rad2deg()
        angles = angles.where(angles > NO_ANGLE, 0)
        shared = rank.clamp(max=int((basis != 0).any(0).sum()))  # (L,)
        # Padding columns are zero and have a cosine of 0: 90 degrees that are no angle between
        # subspaces.
        real = torch.arange(angles.shape[1]) < shared[:, None]
        measured = angles[:, 0] if measure == "smallest" else angles.where(real, 0).sum(1)
        rows.append(measured.where(shared > 0, 90.0))
    return torch.stack(rows) if rows else bases.new_zeros(0, len(others))


def k_means(rows: Tensor, num_clusters: int, seed: int) -> Tensor:
    """Cluster rows (N, D) by k-means, the best of ten starts: labels (N,).

    >>> import torch
    >>> from umbel.method import k_means
    >>> labels = k_means(torch.tensor([[0.0], [0.1], [5.0]]), num_clusters=2, seed=0)
    >>> bool(labels[0] == labels[1] != labels[2])
    True

    Clusters are numbered in order of their first rows. There are fewer clusters if there are fewer
    rows that differ by more than rounding errors. Raises `UsageError` unless `num_clusters` is in 1
    to N.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    check(1 <= num_clusters <= len(rows), "num_clusters", num_clusters, f"in 1 to {len(rows)}")
    values = rows.double().numpy()
    kinds, first = _kinds(values)
    if len(first) <= num_clusters:
        return torch.from_numpy(in_order_of_appearance(kinds))
    # scikit-learn takes seeds of 32 bits.
    fit = KMeans(num_clusters, n_init=10, random_state=seed % 2**32).fit
    with TURN.lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = fit(values)
    # Rows that are alike may be equally near to two means: rounding must not separate them.
    return torch.from_numpy(in_order_of_appearance(fitted.labels_[first[kinds]]))


def _kinds(rows: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The kind (N,) of each row (N, D), and the first row of each; rounding makes no kinds."""
    # A grid of this step: rows that fall on one point of it differ by rounding only. A step of 1
    # serves rows that are all 0.
    apart = rows - rows.mean(0)
    step = max(ALIKE * np.abs(apart).max(initial=0), ROUNDING * np.abs(rows).max(initial=0)) or 1.0
    rounded = (apart / step).round()
    _, first, kinds = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    return kinds.reshape(-1), first


def first_alike(distance: Tensor) -> Tensor:
    """For each row of distances (N, N), the first row at no distance from it: (N,).

    Distances below 1e-7 of the largest, or below 1e-12, are rounding errors. The farthest tenth of
    the rows does not count for the largest: one far row would make all others alike.
    """
    if not len(distance):
        return torch.zeros(0, dtype=torch.long)
    # The mean distance of a row to all others tells the outlying tenth.
    far = max(1, len(distance) // 10) if len(distance) > 4 else 0
    near = distance.mean(1).argsort()[: len(distance) - far]
    # (N, N) bool; in a row, the first True is the first row at no distance.
    alike = distance <= max(ALIKE * float(distance[near[:, None], near].max()), TINY)
    # `argmax` gives the first of several.
    return alike.fill_diagonal_(True).to(torch.uint8).argmax(1)


def k_medoids(distance: Tensor, num_clusters: int, seed: int) -> Tensor:
    """Cluster by distances (N, N) with k-medoids (FasterPAM, best of 20 or 40 starts): labels (N,).

    Rows at no distance from each other are always in one cluster, so that there may be fewer
    clusters. For more than 1,000 rows that differ, the starts run on a sample, and only the best
    one continues on all rows. Raises `UsageError` unless `num_clusters` is in 1 to N.
    """
    size = len(distance)
    check(1 <= num_clusters <= size, "num_clusters", num_clusters, f"in 1 to {size}")
    first, kinds, weights = np.unique(
        first_alike(distance).numpy(), return_inverse=True, return_counts=True
    )
    # No more kinds of rows than clusters: each kind is one.
    if len(first) <= num_clusters:
        return torch.from_numpy(in_order_of_appearance(kinds))
    matrix = distance.numpy()
    # One row for each kind; `weights` count how often it occurs, so that the loss is the same.
    if len(first) < size:
        matrix = matrix[np.ix_(first, first)]
    rng = np.random.default_rng(seed)
    rows = np.arange(len(first))
    if len(rows) > max(SAMPLE, num_clusters):
        rows = np.sort(rng.choice(rows, max(SAMPLE, num_clusters), replace=False))
    sampled = matrix[np.ix_(rows, rows)].astype(np.float64)
    starts = first_medoids(sampled, num_clusters, STARTS if len(rows) > FEW else MORE_STARTS, rng)
    # The sample decides between the starts; the best one is then improved on all rows.
    found = [faster_pam(sampled, start, weights[rows]) for start in starts]
    _, medoids, labels = min(found, key=lambda result: result[0])
    if len(rows) < len(first):
        _, _, labels = faster_pam(matrix, rows[medoids], weights)
    return torch.from_numpy(in_order_of_appearance(labels[kinds]))


def agglomerate(
    distance: Tensor,
    linkage: Linkage,
    num_clusters: int | None = None,
    threshold: float | None = None,
) -> Tensor:
    """Cluster hierarchically by distances (N, N): labels (N,).

    The hierarchy is cut at a number of clusters or at a distance: give exactly one of the two.
    Clusters are numbered in order of their first rows. A single row is one cluster, and so are rows
    at no distance from each other, even if there are then fewer clusters. "ward" is for Euclidean
    distances. Raises `UsageError` if both or none are given, and for more clusters than
    rows.
    """
    from sklearn.cluster import AgglomerativeClustering

    argument("linkage", linkage, Linkage)
    check_cut(num_clusters, threshold)
    most = max(1, len(distance))
    check((num_clusters or 1) <= most, "num_clusters", num_clusters, f"in 1 to {most}")
    if len(distance) < 2:
        return torch.zeros(len(distance), dtype=torch.long)
    # Rows at no distance are never cut apart: more clusters than kinds of rows can't be had.
    if num_clusters is not None:
        num_clusters = min(num_clusters, len(torch.unique(first_alike(distance))))
    if linkage == "ward":
        return _ward(distance, num_clusters, threshold)
    fitted = AgglomerativeClustering(
        metric="precomputed",
        linkage=linkage,
        n_clusters=num_clusters,
        distance_threshold=threshold,
    ).fit(distance.double().numpy())
    return torch.from_numpy(in_order_of_appearance(fitted.labels_))


def check_cut(num_clusters: int | None, threshold: float | None) -> None:
    """Raise `UsageError` unless exactly one of the two is given, and its value is allowed."""
    given = (num_clusters is None) != (threshold is None)
    check(given, "num_clusters, threshold", (num_clusters, threshold), "exactly one of the two")
    check(num_clusters is None or num_clusters >= 1, "num_clusters", num_clusters, "1 or more")
    check(threshold is None or threshold > 0, "threshold", threshold, "more than 0")


def _ward(distance: Tensor, num_clusters: int | None, threshold: float | None) -> Tensor:
    from scipy.cluster import hierarchy
    from scipy.spatial.distance import squareform

    # scikit-learn supports Ward's linkage only for points, not for distances.
    tree = hierarchy.linkage(squareform(distance.double().numpy(), checks=False), "ward")
    if num_clusters is None:
        # Each merge at the threshold or farther is undone, which adds a cluster.
        num_clusters = 1 + int((tree[:, 2] >= threshold).sum())
    # One column of labels, as one number of clusters is asked for.
    labels = hierarchy.cut_tree(tree, num_clusters)[:, 0]
    return torch.from_numpy(in_order_of_appearance(labels))


def loss_distance(
    metric: str, theirs: Tensor, own: Tensor, medoid_own: Tensor, returned: Tensor | None
) -> Tensor:
    """Distances (N, K) of clients i to others m by eq. 2 ("loss"), or eq. 6 ("loss-gap").

    theirs (N, K) is L_i(w_m), own (N,) is L_i(w_i), medoid_own (K,) is L_m(w_m), and returned (K,
    N) is L_m(w_i). Without `returned`, the result is only the half of the distance that does not
    need it.
    """
    # Eq. 6: |L_i(w_i) - L_m(w_i)| + |L_i(w_m) - L_m(w_m)|
    if metric == "loss-gap":
        half = (theirs - medoid_own).abs()
        return half if returned is None else half + (own[:, None] - returned.T).abs()
    # Eq. 2: |L_i(w_i) - L_i(w_m)| + |L_m(w_i) - L_m(w_m)|
    half = (theirs - own[:, None]).abs()
    return half if returned is None else half + (returned.T - medoid_own).abs()
