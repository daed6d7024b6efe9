"""Robust rules of averages: steps that a few lying clients of a cluster can't decide."""

from __future__ import annotations

import logging
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from umbel.checks import UsageError, check
from umbel.reduction import Sums, Updates
from umbel.server.averaging_rules import AveragingRule, Moments
from umbel.server.shares import norms_of

log = logging.getLogger(__name__)

COLUMNS = 2048
"""Values of each client that are sorted at once: a block fits in a processor's cache."""

FARTHEST = 1e300
"""Stands for squared distances that are beyond double precision."""

TINY = 1e-30
"""Shorter updates have no direction."""

TIE = 1e-9
"""Scores with a smaller relative difference are equal: their order is rounding."""

PASSES = 1000
"""Most passes of an iteration."""


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(AveragingRule):
    """The mean of each value without the lowest and the highest ones: a few clients can't move it.

    See Yin et al., Byzantine-robust distributed learning, ICML 2018. Of N values, `trim` N rounded
    down are left out at each end; the others are averaged with the weights of their clients.
    """

    needs_rows: ClassVar[bool] = True

    trim: float = 0.1  #: beta, the share left out at each end, in [0, 0.5)

    def __post_init__(self) -> None:
        check(0 <= self.trim < 0.5, "trim", self.trim, "in [0, 0.5)")

    def mean(self, updates: Sums | Updates) -> Tensor:
        assert isinstance(updates, Updates)
        found = updates.values.new_zeros(updates.num_clusters, updates.values.shape[1])
        for k, places in updates.members():
            cut = int(self.trim * len(places))
            found[k] = trimmed(updates.values, cut, places, updates.shares[places])
        return found


@dataclass(frozen=True, kw_only=True)
class Robust(AveragingRule):
    """Base of the rules that work on the rows of a cluster's clients, each of which counts once.

    Claimed numbers of examples do not count, whatever `averaging.weights` is; a client without
    examples is left out. Distances, norms and cosines are of trained values alone; statistics of
    normalisation layers move by their coordinate median.
    """

    needs_rows: ClassVar[bool] = True

    #: what becomes of a cluster with fewer clients than the rule needs: the coordinate median, no
    #: step, or an error
    small: Literal["median", "stay", "stop"] = "median"

    def mean(self, updates: Sums | Updates) -> Tensor:
        assert isinstance(updates, Updates)
        found = updates.values.new_zeros(updates.num_clusters, updates.values.shape[1])
        for k, places in updates.members():
            found[k] = self.center(updates, k, places)
        return found

    @abstractmethod
    def center(self, updates: Updates, cluster: int, places: Tensor) -> Tensor:
        """Return the step (P,) of a cluster, whose clients' rows are at these places (N,)."""

    def of_small(self, updates: Updates, places: Tensor, needed: str) -> Tensor:
        """Return the step (P,) of a cluster with too few clients, as `small` says."""
        name = type(self).__name__
        if self.small == "stop":
            how = 'give clusters more clients, or set `small` to "median" or "stay"'
            raise UsageError(
                f"averaging.rule: {name} needs {needed}, and a cluster has {len(places)}; {how}"
            )
        done = "moves by its coordinate median" if self.small == "median" else "does not move"
        _warn_once(f"averaging.rule: {name} needs {needed}; a cluster with fewer {done}")
        if self.small == "stay":
            return updates.values.new_zeros(updates.values.shape[1])
        return median(updates.values, places)


@cache
def _warn_once(message: str) -> None:
    log.warning("%s", message)


@dataclass(frozen=True, kw_only=True)
class AgainstLiars(Robust):
    """Base of the rules that hold against f liars among the n clients of a cluster."""

    spare: ClassVar[int] = 1  #: the rule needs n >= 2 f + `spare`

    #: largest share of a cluster's clients that may lie, in [0, 0.5): f = liars n, rounded up
    liars: float = 0.2
    #: whether each row is first replaced by the mean of its n - f nearest (Allouah et al. 2023)
    mixing: bool = False

    def __post_init__(self) -> None:
        check(0 <= self.liars < 0.5, "liars", self.liars, "in [0, 0.5)")

    def num_liars(self, count: int) -> int:
        """f, the number of liars among so many clients."""
        return ceil(self.liars * count - TIE)  # .1 times 30 is a little above 3

    def is_enough(self, count: int) -> bool:
        """Whether the rule holds with so many clients."""
        return count >= 2 * self.num_liars(count) + self.spare

    def check_cohort(self, num_clients: int, cohort: int) -> None:  # noqa: ARG002
        enough = any(map(self.is_enough, range(1, cohort + 1)))
        expected = f"possible with a cohort of {cohort}: it needs {self._needed}"
        check(enough, "averaging.rule", type(self).__name__, expected)

    @property
    def _needed(self) -> str:
        return f"2 f + {self.spare} clients or more, with f = {self.liars:g} n liars among n"

    def center(self, updates: Updates, cluster: int, places: Tensor) -> Tensor:
        if not self.is_enough(len(places)):
            return self.of_small(updates, places, self._needed)
        f = self.num_liars(len(places))
        mixed, at = updates, places
        if self.mixing:
            rows = updates.rows(places)
            near = lowest(squared_distances(products(rows)), len(rows) - f).to(rows.dtype)
            mixed, at = replace(updates, values=near @ rows), torch.arange(len(rows))
        step = self.among(mixed, cluster, at, f)
        # A liar may be chosen for its weights, and lie about its statistics.
        return torch.cat([step, median(updates.values[:, updates.width :], places).to(step.dtype)])

    @abstractmethod
    def among(self, updates: Updates, cluster: int, places: Tensor, f: int) -> Tensor:
        """Return the step (W,) of a cluster, f of whose clients' rows, at these places, may lie."""


@dataclass(frozen=True, kw_only=True)
class Median(AgainstLiars):
    """The median of each value (Yin et al. 2018); of an even number, the mean of both middle ones.

    >>> umbel.FedAvg(averaging=umbel.Averaging(rule=umbel.Median())).averaging.rule.liars
    0.2
    """

    def among(self, updates: Updates, cluster: int, places: Tensor, f: int) -> Tensor:  # noqa: ARG002
        return median(updates.values[:, : updates.width], places)


@dataclass(frozen=True, kw_only=True)
class _Weighted(AgainstLiars):
    """Base of the rules that find weights of the rows by their inner products."""

    @abstractmethod
    def weights(self, inner: Tensor, f: int) -> Tensor:
        """Return the weights (N,), with sum 1, from inner products (N, N)."""

    def among(self, updates: Updates, cluster: int, places: Tensor, f: int) -> Tensor:  # noqa: ARG002
        rows = updates.rows(places)
        return self.weights(products(rows), f).to(rows.dtype) @ rows


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(_Weighted):
    """The point whose distances to the clients' updates have the smallest sum.

    See Pillutla et al., IEEE TSP 2022: smoothed Weiszfeld, z <- sum_i b_i x_i / sum_i b_i with
    b_i = 1 / max(nu, |z - x_i|), until nothing changes.
    """

    nu: float = 1e-6  #: smallest distance that counts

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.nu > 0, "nu", self.nu, "more than 0")

    def weights(self, inner: Tensor, f: int) -> Tensor:  # noqa: ARG002
        squared = squared_distances(inner)
        # It starts at the mean of the half that is nearest to all: rows far off would take long.
        weights = lowest(squared.sqrt().sum(1), len(squared) // 2 + 1)
        for _ in range(PASSES):
            # |z - x_i|^2 = |x_i|^2 - 2 z x_i + |z|^2, for z = sum_j w_j x_j.
            along = inner @ weights
            apart = (inner.diagonal() - 2 * along + weights @ along).clamp(min=0).sqrt()
            after = 1 / apart.clamp(min=self.nu)
            before, weights = weights, after / after.sum()
            if (weights - before).abs().max() < 1e-12:
                break
        return weights


@dataclass(frozen=True, kw_only=True)
class Krum(_Weighted):
    """The update with the smallest sum of squared distances to its n - f - 2 nearest ones.

    See Blanchard et al., NeurIPS 2017. Of several with the same sum, it is the mean.
    """

    spare: ClassVar[int] = 3

    def weights(self, inner: Tensor, f: int) -> Tensor:
        return lowest(self.scores(inner, f), 1)

    def scores(self, inner: Tensor, f: int) -> Tensor:
        """(N,): sum of the n - f - 2 smallest squared distances to others."""
        # The first column has each row's distance to itself.
        nearest = squared_distances(inner).fill_diagonal_(-1).sort().values[:, 1:]
        return nearest[:, : len(inner) - f - 2].sum(1)


@dataclass(frozen=True, kw_only=True)
class MultiKrum(Krum):
    """The mean of the n - f updates with the lowest scores of `Krum` (Blanchard et al. 2017)."""

    def weights(self, inner: Tensor, f: int) -> Tensor:
        return lowest(self.scores(inner, f), len(inner) - f)


@dataclass(frozen=True, kw_only=True)
class _Clipping(AgainstLiars):
    """Base of the rules that shorten differences."""

    from_origin: ClassVar[bool] = True

    radius: float | None = None  #: longest difference; None: the median of their norms

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.radius is None or self.radius > 0, "radius", self.radius, "more than 0")

    def clipped(self, updates: Updates, cluster: int, places: Tensor, passes: int) -> Tensor:
        """v <- v + mean_i (x_i - v) min(1, radius / |x_i - v|), so many times from the last v."""
        rows, last = updates.rows(places), updates.last(cluster)
        v = torch.zeros_like(rows[0]) if last is None else last.to(rows.dtype)
        for _ in range(passes):
            apart = torch.cat([norms_of((row - v)[None]) for row in rows])
            factors = shrinking(apart, self.radius).to(v.dtype) / len(rows)
            v = v + (factors @ rows - factors.sum() * v)
        return v


@dataclass(frozen=True, kw_only=True)
class NormBound(_Clipping):
    """The mean of updates that are shortened to a norm: their median norm, or `radius`.

    See Sun et al., Can you really backdoor federated learning?, arXiv 1911.07963.
    """

    def among(self, updates: Updates, cluster: int, places: Tensor, f: int) -> Tensor:  # noqa: ARG002
        return self.clipped(updates, cluster, places, 1)


@dataclass(frozen=True, kw_only=True)
class CentredClipping(_Clipping):
    """The last step, moved by the mean of the clipped differences between updates and it.

    See Karimireddy et al., ICML 2021: v <- v + mean_i (x_i - v) min(1, radius / |x_i - v|), from
    the cluster's last step; at first, 0. Without a `radius` it is the median of |x_i - v|.
    """

    passes: int = 1  #: L, how often v moves in a round

    def __post_init__(self) -> None:
        super().__post_init__()
        check(1 <= self.passes <= PASSES, "passes", self.passes, f"in 1 to {PASSES}")

    def among(self, updates: Updates, cluster: int, places: Tensor, f: int) -> Tensor:  # noqa: ARG002
        return self.clipped(updates, cluster, places, self.passes)

    def start(self, mean: Tensor) -> Moments:
        return (torch.zeros_like(mean),)

    def step(self, mean: Tensor, moments: Moments) -> tuple[Tensor, Moments]:  # noqa: ARG002
        return mean, (mean,)


@dataclass(frozen=True, kw_only=True)
class FLAME(AgainstLiars):
    """The mean of the updates that most agree with in direction, shortened to the median norm.

    See Nguyen et al., USENIX Security 2022. HDBSCAN clusters cosine distances, and the cluster of
    more than half of the clients is admitted; without any, nothing moves. The distances are of
    updates where the paper compares models, and noise is left to `[privacy]`.
    """

    from_origin: ClassVar[bool] = True

    def is_enough(self, count: int) -> bool:
        return count >= 2 and super().is_enough(count)  # HDBSCAN needs two

    def among(self, updates: Updates, cluster: int, places: Tensor, f: int) -> Tensor:  # noqa: ARG002
        rows = updates.rows(places)
        inner = products(rows)
        norms = inner.diagonal().sqrt()
        admitted = _majority(inner / (norms[:, None] * norms).clamp(min=TINY))
        share = admitted * shrinking(norms, None) / admitted.sum().clamp(min=1)
        return share.to(rows.dtype) @ rows


def _majority(cosines: Tensor) -> Tensor:
    """(N,) bool: the cluster of more than half, by cosines (N, N) of rows."""
    from sklearn.cluster import HDBSCAN  # takes a second to import

    distance = (1 - cosines).clamp(0, 2).fill_diagonal_(0).numpy()
    # min_samples 2: the paper's is 1, of another package, which does not count a row itself.
    least = len(distance) // 2 + 1
    method = HDBSCAN(least, 2, metric="precomputed", allow_single_cluster=True, copy=True)
    return torch.from_numpy(method.fit(distance).labels_) >= 0  # only one can be that large


@dataclass(frozen=True, kw_only=True)
class FLTrust(Robust):
    """The mean of updates weighted by their cosines with the update of trusted clients.

    See Cao et al., NDSS 2021: the weight of x_i is max(0, cos(x_i, g)), and x_i is scaled to |g|;
    g is the mean update of `trusted`, clients that the server itself holds. A cluster without one
    is compared with the mean of all trusted ones that answered. If no other client of a cluster has
    a weight, its step is g. Statistics are those of the trusted. There may be any number of liars.
    """

    from_origin: ClassVar[bool] = True

    trusted: tuple[int, ...] = ()  #: numbers of the clients whose updates are the server's own

    def check_cohort(self, num_clients: int, cohort: int) -> None:  # noqa: ARG002
        fine = bool(self.trusted) and all(0 <= each < num_clients for each in self.trusted)
        expected = f"one or more numbers of clients, in 0 to {num_clients - 1}"
        check(fine, "averaging.rule.trusted", self.trusted, expected)

    def center(self, updates: Updates, cluster: int, places: Tensor) -> Tensor:  # noqa: ARG002
        if updates.clients is None:
            raise UsageError(
                "averaging.rule: FLTrust needs the numbers of clients: give `averaging.sums` "
                "clients=trained.clients"
            )
        ours = torch.isin(updates.clients, torch.tensor(self.trusted, dtype=torch.long))
        if not ours.any():
            return self.of_small(updates, places, "an answer of a trusted client")
        own = places[ours[places]]
        own = own if len(own) else ours.nonzero()[:, 0]
        g, statistics = updates.rows(own).mean(0), updates.values[own, updates.width :]
        rows = updates.rows(places[~ours[places]])
        length, norms = norms_of(g[None]), norms_of(rows).clamp(min=TINY)
        unit = g / length.clamp(min=TINY).to(g.dtype)
        # cos(x_i, g), by one row at a time: products of long rows would be infinite.
        cosines = [
            float(row / norm @ unit) for row, norm in zip(rows, norms.to(g.dtype), strict=True)
        ]
        trust = torch.tensor(cosines, dtype=torch.double).clamp(min=0)
        if trust.any():
            g = (trust / trust.sum() * length / norms).to(g.dtype) @ rows
        return torch.cat([g, statistics.mean(0)])


def median(rows: Tensor, places: Tensor | None = None) -> Tensor:
    """The median (P,) of each column of rows, or of those at these places (N,)."""
    return trimmed(rows, ((len(rows) if places is None else len(places)) - 1) // 2, places)


def trimmed(
    rows: Tensor, cut: int, places: Tensor | None = None, weights: Tensor | None = None
) -> Tensor:
    """The mean (P,) of each column of rows without its `cut` lowest and highest values.

    Means have the weights (N,) of the values' rows, and only rows at these places (N,) count.
    """
    found = []
    own = None if weights is None or (weights == weights[0]).all() else weights.double().numpy()
    whole = places is None or len(places) == len(rows)
    wide = torch.promote_types(rows.dtype, torch.float32)
    for block in torch.split(rows, COLUMNS, 1):
        some = block if whole else block[places]
        # Sorting values that lie side by side takes a quarter of the time of torch.sort(0).
        columns = np.ascontiguousarray(some.to(wide).numpy().T)
        if own is None:
            columns.sort(1)
            kept = columns[:, cut : columns.shape[1] - cut]
            found.append(kept.mean(1, dtype=np.float64))
        else:
            order = columns.argsort(1)[:, cut : columns.shape[1] - cut]
            kept = np.take_along_axis(columns, order, 1).astype(np.float64)
            found.append((kept * own[order]).sum(1) / own[order].sum(1))
    return torch.from_numpy(np.concatenate(found)).to(rows.dtype)


def products(rows: Tensor) -> Tensor:
    """Inner products (N, N) of rows, float64, without a copy of all rows in that precision."""
    found = torch.zeros(len(rows), len(rows), dtype=torch.double)
    for block in torch.split(rows, 8 * COLUMNS, 1):
        wide = block.double()
        found += wide @ wide.T
    return found.nan_to_num(nan=FARTHEST, posinf=FARTHEST)


def squared_distances(inner: Tensor) -> Tensor:
    """Squared distances (N, N) from inner products: |x|^2 + |y|^2 - 2 x y, and 0 to itself."""
    squares = inner.diagonal()
    return (squares[:, None] + squares - 2 * inner).clamp(0, FARTHEST).fill_diagonal_(0)


def lowest(scores: Tensor, count: int) -> Tensor:
    """Weights (..., N), with sum 1, of the `count` lowest scores; equal ones share the last places.

    So the order of clients does not matter.
    """
    scores = scores.clamp(max=FARTHEST)
    edge = scores.kthvalue(count, dim=-1, keepdim=True).values
    below, equal = scores < edge * (1 - TIE), (scores - edge).abs() <= edge * TIE
    shared = (count - below.sum(-1, keepdim=True)).double() / equal.sum(-1, keepdim=True)
    return (below + equal * shared) / count


def shrinking(norms: Tensor, longest: float | None) -> Tensor:
    """The factors (N,) by which rows with these norms are no longer than `longest`, or a median."""
    norms = norms.clamp(TINY, FARTHEST)
    most = float(norms.quantile(0.5)) if longest is None else longest
    return (most / norms).clamp(max=1)
