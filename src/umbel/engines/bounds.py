"""Bounds on how far one client moves a model: its share of the weight, its step's length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from umbel.engines.validation import Limits
from umbel.flow import Replies, Request
from umbel.summary import in_short

STEPS = ("update", "gradient", "feature")
"""Columns whose rows move models, or means that clients are clustered by."""


@dataclass(frozen=True)
class Claims:
    """What the bounds of a request depend on: small, where the rows themselves are large."""

    clients: Tensor  # (N,) who answered
    clusters: Tensor  # (N,) whose average each enters
    counts: Tensor | None  # (N,) numbers of examples; None: they are not sent
    norms: Mapping[str, Tensor]  # by column, (N,) float64, of those that are bounded

    __repr__ = in_short

    @classmethod
    def of(cls, request: Request, replies: Replies, limits: Limits) -> Claims | None:
        """What these replies to a request, or to a part of it, claim; None if nothing moves."""
        steps = [name for name in STEPS if name in replies.columns]
        if not steps or request.work.split != "train" or not len(replies.clients):
            return None
        bounded = [] if limits.max_norm_ratio is None else steps
        return cls(
            replies.clients,
            _clusters(request, replies),
            replies.columns.get("num_examples"),
            {name: _norms(replies.columns[name]) for name in bounded},
        )

    @classmethod
    def joined(cls, parts: Sequence[Claims]) -> Claims:
        """The claims of all parts of a request."""
        counts = [part.counts for part in parts if part.counts is not None]
        return cls(
            torch.cat([part.clients for part in parts]),
            torch.cat([part.clusters for part in parts]),
            torch.cat(counts) if counts else None,
            {name: torch.cat([part.norms[name] for part in parts]) for name in parts[0].norms},
        )


@dataclass(frozen=True)
class Bounds:
    """Whose number of examples is lowered, and whose steps are shortened."""

    examples: Mapping[int, int] = field(default_factory=dict)  # by client: what counts instead
    scales: Mapping[str, Mapping[int, float]] = field(default_factory=dict)  # by column and client
    reasons: Mapping[int, str] = field(default_factory=dict)  # by client: what is bounded, and how

    __repr__ = in_short

    @classmethod
    def among(cls, parts: Sequence[Claims | None], limits: Limits) -> Bounds:
        """The bounds of each client, relative to all that answered the same request."""
        known = [part for part in parts if part is not None]
        if not known:
            return cls()
        claims, reasons = Claims.joined(known), dict[int, str]()
        examples = {}
        for client, claimed, most in _heavy_clients(claims, limits.max_share):
            examples[client] = most
            reasons[client] = (
                f"num_examples: {claimed:,} counted as {most:,}, by limits.max_share = "
                f"{limits.max_share:g}"
            )
        scales: dict[str, dict[int, float]] = {}
        for name, norms in claims.norms.items():
            ratio = limits.max_norm_ratio
            assert ratio is not None
            for client, norm, longest in _long_steps(claims.clients, norms, ratio):
                scales.setdefault(name, {})[client] = longest / norm
                reasons[client] = (
                    f"{name}: of norm {norm:.3g}, shortened to {longest:.3g}, by "
                    f"limits.max_norm_ratio = {ratio:g}"
                )
        return cls(examples, scales, reasons)

    def apply(self, replies: Replies) -> Replies:
        """Return the replies with bounded numbers of examples and steps."""
        clients = replies.clients.tolist()
        if self.reasons.keys().isdisjoint(clients):
            return replies
        names = ["num_examples", *self.scales] if self.examples else list(self.scales)
        changed = {name: replies.columns[name].clone() for name in names}
        for n, client in enumerate(clients):
            if client in self.examples:
                changed["num_examples"][n] = self.examples[client]
            for name, scales in self.scales.items():
                if client in scales:
                    changed[name][n] *= scales[client]
        return replace(replies, columns={**replies.columns, **changed})


def _clusters(request: Request, replies: Replies) -> Tensor:
    """(N,) the cluster whose average each client enters, as it says or as it was asked."""
    reduction, theta = request.reduction, request.each.get("theta")
    if "chosen" in replies.columns:
        return replies.columns["chosen"]
    if reduction is not None and reduction.labels is not None:
        return reduction.labels[replies.clients]
    if theta is None:
        return torch.zeros_like(replies.clients)
    # Methods average over those who are sent the same model.
    asked, places = request.clients.sort()
    return theta.index[places[torch.searchsorted(asked, replies.clients)]]


def _norms(rows: Tensor) -> Tensor:
    """(N,) the length of each row."""
    # Row by row: a copy of all of them in double precision takes five times as long.
    return torch.stack([torch.linalg.vector_norm(row, dtype=torch.double) for row in rows])


def _heavy_clients(claims: Claims, share: float) -> Iterator[tuple[int, int, int]]:
    """Who has more than its share: the client, what it claims, and what it may have."""
    if claims.counts is None or share >= 1:
        return
    allowed = _allowed(claims.counts, claims.clusters, share)
    high = allowed < claims.counts
    columns = (claims.clients, claims.counts, allowed)
    yield from zip(*(column[high].tolist() for column in columns), strict=True)


def _long_steps(clients: Tensor, norms: Tensor, ratio: float) -> Iterator[tuple[int, float, float]]:
    """Who steps too far: the client, the length of its step, and the longest that it may have."""
    moved = norms[norms > 0]  # who stays where it is says nothing of how far is too far
    if not len(moved):
        return
    longest = ratio * float(moved.median())
    long = norms > longest
    for client, norm in zip(clients[long].tolist(), norms[long].tolist(), strict=True):
        yield client, norm, longest


def _allowed(counts: Tensor, clusters: Tensor, share: float) -> Tensor:
    """Numbers of examples (N,) with no more than its share in any average.

    Averages of parameters that clusters share are over all clients: there, too.
    """
    allowed, claimed = counts.clone(), counts.double()
    _, index, sizes = torch.unique(clusters, return_inverse=True, return_counts=True)
    sums = torch.zeros(len(sizes), dtype=torch.double).index_add_(0, index, claimed)
    # Most often there is no such cluster, however many there are.
    heavy = (claimed * (1 - share) > share * (sums[index] - claimed)) & (sizes[index] > 1)
    for cluster in sorted(set(index[heavy].tolist())):
        members = index == cluster
        allowed[members] = bounded_weights(counts[members], share)
    return bounded_weights(allowed, share)


def bounded_weights(counts: Tensor, share: float) -> Tensor:
    """Lower numbers of examples (N,) until none is more than this share of all clients' together.

    A single client is not bounded: it is alone.
    """
    if len(counts) < 2 or share >= 1:
        return counts
    least, bounded = counts.double().clamp(max=float(counts.min())), counts.double()
    for _ in range(ROUNDS):
        others = bounded.sum() - bounded
        most = share / (1 - share) * others * (1 + ROUNDING)
        lower = torch.minimum(bounded, most).floor().maximum(least)
        if torch.equal(lower, bounded):
            break
        bounded = lower
    return bounded.to(counts.dtype)


ROUNDING = 1e-12
"""A bound that is a whole number may come out a little below it."""

ROUNDS = 100
"""Passes in which several clients above their share are lowered; one passes for one client."""
