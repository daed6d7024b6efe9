"""Clients' rows by cluster, and their sums, all at once or block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from umbel.summary import in_short

MANY = 64
"""Above this many clusters, rows are added one by one instead of by a matrix product."""


@dataclass(frozen=True)
class Sums:
    """Sums of rows (N, P) and of their weights in K clusters."""

    values: Tensor  #: (K, P) sum of weight times row, in single precision at least
    weights: Tensor  #: (K,) float64, sum of weights
    dtype: torch.dtype  #: the type of the means: that of the rows, if they are floating-point

    __repr__ = in_short

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.values + other.values, self.weights + other.weights, self.dtype)

    def means(self) -> Tensor:
        """Weighted means (K, P); 0 for a cluster without clients."""
        weights = torch.where(self.weights > 0, self.weights, 1).to(self.values.dtype)
        return (self.values / weights[:, None]).to(self.dtype)

    def together(self) -> Sums:
        """The sums over all clusters, as those of one cluster."""
        return Sums(self.values.sum(0, keepdim=True), self.weights.sum(0, keepdim=True), self.dtype)


@dataclass(frozen=True)
class Updates:
    """Rows (N, P) in K clusters as they are, for averages that need more than their sums."""

    values: Tensor  #: (N, P) rows
    labels: Tensor  #: (N,) int64, the cluster of each row
    shares: Tensor  #: (N,) weight of each row
    num_clusters: int  #: K
    clients: Tensor | None = None  #: (N,) the number of each row's client, if known
    num_weights: int | None = None  #: W, the number of trained values; None: all
    #: what the rule remembers of earlier steps: tensors (K, W)
    moments: tuple[Tensor, ...] = ()
    scale: float = 1.0  #: factor by which the method makes a step of a mean

    __repr__ = in_short

    @property
    def width(self) -> int:
        """W: values after these are statistics of normalisation layers."""
        return self.values.shape[1] if self.num_weights is None else self.num_weights

    def members(self) -> Iterator[tuple[int, Tensor]]:
        """The clusters that have clients with weights, and the places (N,) of these."""
        counted = (self.shares > 0).nonzero()[:, 0]
        for k in torch.unique(self.labels[counted]).tolist():
            yield k, counted[self.labels[counted] == k]

    def rows(self, places: Tensor) -> Tensor:
        """The trained values (N, W) of the rows at these places, in single precision at least."""
        rows = self.values if len(places) == len(self.values) else self.values[places]
        rows = rows[:, : self.width]
        return rows.to(torch.promote_types(rows.dtype, torch.float32))

    def last(self, cluster: int) -> Tensor | None:
        """(W,) the last step of a cluster as a mean, if the rule remembers it."""
        known = self.moments and self.scale
        return self.moments[0][cluster] / self.scale if known else None

    @property
    def weights(self) -> Tensor:
        """(K,) float64, sum of weights in each cluster."""
        total = torch.zeros(self.num_clusters, dtype=torch.float64)
        return total.index_add_(0, self.labels, self.shares.double())

    def sums(self) -> Sums:
        """The sums of these rows."""
        return cluster_sums(self.values, self.labels, self.shares, self.num_clusters)

    def means(self) -> Tensor:
        """Weighted means (K, P); 0 for a cluster without clients."""
        return self.sums().means()

    def together(self) -> Updates:
        """The same rows in one cluster."""
        moments = tuple(each.mean(0, keepdim=True) for each in self.moments)
        nobody = torch.zeros_like(self.labels)
        return replace(self, labels=nobody, num_clusters=1, moments=moments)


@dataclass(frozen=True)
class Reduction:
    """Allows an engine to return sums over clusters in place of the rows of a column.

    `Averaging.reduction` makes one. A client's cluster is known in advance (`labels`), or the
    client reports it in another column of its reply.
    """

    num_clusters: int  #: K
    #: (M,) the cluster of each client; None: the client reports it in column `chosen`
    labels: Tensor | None
    weights: str | None = "num_examples"  #: the column with a client's weight; None: all equal
    column: str = "update"  #: the column that is summed
    chosen: str = "chosen"  #: the column with a client's cluster
    rows: bool = False  #: whether rows are needed as they are: no engine sums them

    __repr__ = in_short

    def of(self, clients: Tensor, columns: Mapping[str, Tensor]) -> tuple[Sums, dict[str, Tensor]]:
        """Return the sums and the other columns of these clients' replies."""
        others = {name: rows for name, rows in columns.items() if name != self.column}
        return self.updates(clients, columns).sums(), others

    def updates(self, clients: Tensor, columns: Mapping[str, Tensor]) -> Updates:
        """Return the rows that are to be summed, with their clusters and weights."""
        labels = columns[self.chosen] if self.labels is None else self.labels[clients]
        # Without `labels`, the cluster is the client's own choice, a column of its reply.
        ones = torch.ones(len(clients), dtype=torch.float64)
        weights = ones if self.weights is None else columns[self.weights]
        return Updates(columns[self.column], labels, weights, self.num_clusters, clients)


def cluster_sums(rows: Tensor, labels: Tensor, weights: Tensor, num_clusters: int) -> Sums:
    """Weighted sums of finite rows (N, P), with weights (N,), within each cluster."""
    total = torch.zeros(num_clusters, dtype=torch.float64).index_add_(0, labels, weights.double())
    # Counts of examples are beyond what half precision holds.
    wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
    dtype = rows.dtype if rows.is_floating_point() else wide.dtype
    own = weights.to(wide.dtype)
    # The matrix of shares would be mostly zeros, and as large as the rows.
    if num_clusters > MANY:
        values = wide.new_zeros(num_clusters, wide.shape[1])
        return Sums(values.index_add_(0, labels, wide * own[:, None]), total, dtype)
    # shares (K, N): a client's weight in the row of its cluster, so that the sums are one product.
    shares = wide.new_zeros(num_clusters, len(wide))
    shares[labels, torch.arange(len(wide))] = own
    return Sums(shares @ wide, total, dtype)
