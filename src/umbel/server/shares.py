"""Bounds on one client's weight in an average, and on the norm of its rows."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

ROUNDING = 1e-12
"""Tolerance: by rounding, a bound that is an integer may be computed a little too low."""

ROUNDS = 100
"""Largest number of passes that settle whole numbers, after the level that all are cut to."""


def within_shares(counts: Tensor, clusters: Tensor, share: float) -> Tensor:
    """Lower numbers of examples (N,) so that no client exceeds `share` in any average.

    This includes averages over all clients, as for parameters that clusters share.
    """
    if share >= 1:
        return counts
    allowed, claimed = counts.clone(), counts.double()
    _, index, sizes = torch.unique(clusters, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(sizes), dtype=torch.double).index_add_(0, index, claimed)
    # In most cases no cluster has such a client, even if there are many clusters. c_i > share sum_j
    # c_j, written as c_i (1 - share) > share (sum_j c_j - c_i). A client that is alone in its
    # cluster has the whole average in any case.
    heavy = (claimed * (1 - share) > share * (sums[index] - claimed)) & (sizes[index] > 1)
    for cluster in sorted(set(index[heavy].tolist())):
        members = index == cluster
        allowed[members] = bounded_weights(counts[members], share)
    return bounded_weights(allowed, share)


def bounded_weights(counts: Tensor, share: float) -> Tensor:
    """Lower numbers of examples (N,) until none exceeds this share of the total.

    There is no bound if only one client has examples.
    """
    some = counts > 0
    if int(some.sum()) < 2 or share >= 1:
        return counts
    # A client without examples has no weight in any case, and must not count for the smallest.
    if not some.all():
        return counts.masked_scatter(some, bounded_weights(counts[some], share))
    # No weight falls below the smallest count: weights stay whole numbers of at least 1.
    least = counts.double().clamp(max=float(counts.min()))
    bounded = counts.double().clamp(
        max=max(_level(counts.double(), share) + 2, float(counts.min()))
    )
    # Weights are whole, so the level is only a start: c_i <= share / (1 - share) sum_(j != i) c_j
    # is enforced again and again, as each cut lowers the others' bounds.
    for _ in range(ROUNDS):
        others = bounded.sum() - bounded
        most = share / (1 - share) * others * (1 + ROUNDING)
        lower = torch.minimum(bounded, most).floor().maximum(least)
        if torch.equal(lower, bounded):
            break
        bounded = lower
    return bounded.to(counts.dtype)


def _level(counts: Tensor, share: float) -> float:
    """The number that the largest counts (N,) are cut to, so that each has this share of all."""
    falling = counts.sort(descending=True).values
    cut = torch.arange(1, len(falling) + 1, dtype=torch.double)
    # If the h largest are cut to l: l = share (h l + rest_h), so l = share rest_h / (1 - share h).
    rest = falling.sum() - falling.cumsum(0)
    levels = torch.where(cut * share < 1, share * rest / (1 - cut * share), inf)
    # The counts that exceed their level are the first `heavy` ones: those are cut.
    heavy = int((levels < falling).long().cumprod(0).sum())
    return float(levels[heavy - 1]) if heavy else inf


def norms_of(rows: Tensor) -> Tensor:
    """(N,) float64, the length of each row."""
    # One row at a time: a copy of all rows in double precision takes five times as long.
    lengths = [torch.linalg.vector_norm(row, dtype=torch.double) for row in rows]
    return torch.stack(lengths) if lengths else torch.zeros(0, dtype=torch.double)


def longest_of(norms: Tensor, ratio: float) -> float:
    """`ratio` times the median of the lengths above 0; infinite if there are none.

    Clients that do not move at all must not influence the bound.
    """
    moved = norms[norms > 0]
    return ratio * float(moved.median()) if len(moved) else inf


def within_norms(rows: Tensor, kept: Tensor, ratio: float | None) -> Tensor:
    """Rows (N, J), none longer than `ratio` times the median length of nonzero kept rows.

    The kept rows allow a comparison even if few clients answer.
    """
    if ratio is None:
        return rows
    # The median is over all clients that have a feature, not the few that answer now.
    longest, lengths = longest_of(norms_of(kept), ratio), norms_of(rows)
    return rows * torch.where(lengths > longest, longest / lengths, 1).to(rows.dtype)[:, None]
