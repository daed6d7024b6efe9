"""Bounds on one client's influence on a model: its share of the weights, and its step's length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from umbel.client.layout import Layout
from umbel.engines.replies.invalid_models import first_statistic, floors
from umbel.engines.replies.validation import Limits, first_scaled
from umbel.flow import STEPS, Replies, Request, clusters_in
from umbel.server.shares import longest_of, norms_of, within_shares
from umbel.summary import in_short


class Piece(NamedTuple):
    """A range of values in each row of a column; the norm of each range is bounded separately."""

    column: str
    begin: int
    end: int
    name: str  # in messages

    def of(self, rows: Tensor) -> Tensor:
        """A view of these values, of rows (..., P)."""
        return rows[..., self.begin : self.end]


@dataclass(frozen=True)
class Claims:
    """The values that the bounds of a request depend on; far smaller than the replies."""

    clients: Tensor  # (N,) who answered
    clusters: Tensor  # (N,) the cluster whose average each client enters
    counts: Tensor | None  # (N,) numbers of examples that clients report; None: no weights
    norms: Mapping[Piece, Tensor]  # (N,) float64, the norms of each piece
    # (N,) whose average this client enters, if it alone is harmed by what it sends: -1 if not
    apart: Tensor
    scaled: Mapping[str, Tensor]  # (N, S) magnitudes of numbers whose scale is that of the data
    allowed: Mapping[str, Tensor]  # (S,) which of them need no comparison with other clients'

    __repr__ = in_short

    @classmethod
    def of(
        cls,
        request: Request,
        replies: Replies,
        limits: Limits,
        layout: Layout | None = None,
        pooled: bool = True,
    ) -> Claims | None:
        """Collect the claims in replies to a request, or a part of it; None if nothing is bounded.

        `pooled` says that what clients of several clusters send may enter one average.
        """
        table = replies.columns.get("losses")
        compared = [] if table is None or limits.max_norm_ratio is None else ["losses"]
        steps = [name for name in STEPS if name in replies.columns] + compared
        if not steps or request.work.split != "train" or not len(replies.clients):
            return None
        # Shares of one request say nothing of averages that are taken over several.
        weights = replies.columns.get("num_examples") if request.use == "averaged" else None
        bounded = [] if limits.max_norm_ratio is None else steps
        pieces = [p for name in bounded for p in _pieces(request, replies, name, layout)]
        clusters = clusters_in(request, replies)
        mixed = pooled or request.use != "averaged"
        scaled = _scaled(request, replies, limits, layout)
        return cls(
            replies.clients,
            clusters,
            weights,
            {piece: norms_of(piece.of(replies.columns[piece.column])) for piece in pieces},
            torch.full_like(clusters, -1) if mixed else clusters,
            {name: values for name, (values, _) in scaled.items()},
            {name: allowed for name, (_, allowed) in scaled.items()},
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
            torch.cat([part.apart for part in parts]),
            {name: torch.cat([part.scaled[name] for part in parts]) for name in parts[0].scaled},
            parts[0].allowed,
        )

    def usual(self, values: Tensor) -> Tensor:
        """Return medians (N, ...): of all clients, or of the client's cluster if larger."""
        usual = values.median(0).values.expand_as(values).clone()
        for cluster in torch.unique(self.apart[self.apart >= 0]).tolist():
            members = self.apart == cluster
            usual[members] = usual[members].maximum(values[members].median(0).values)
        return usual


@dataclass(frozen=True)
class Bounds:
    """Clients whose numbers of examples are lowered or whose steps are shortened, and how far."""

    # client -> the number that counts instead
    examples: Mapping[int, int] = field(default_factory=dict)
    scales: Mapping[Piece, Mapping[int, float]] = field(default_factory=dict)  # by client
    reasons: Mapping[int, str] = field(default_factory=dict)  # client -> what is bounded, and how
    refused: Mapping[int, str] = field(default_factory=dict)  # client -> why its reply is not used

    __repr__ = in_short

    @classmethod
    def among(cls, parts: Sequence[Claims | None], limits: Limits) -> Bounds:
        """Compute each client's bounds, relative to all clients that answered the same request."""
        known = [part for part in parts if part is not None]
        if not known:
            return cls()
        claims, reasons = Claims.joined(known), dict[int, str]()
        refused = _beyond_others(claims, limits.max_value)
        examples = {}
        for client, claimed, most in _heavy_clients(claims, limits.max_share):
            examples[client] = most
            reasons[client] = (
                f"num_examples: {claimed:,} counted as {most:,}, by limits.max_share = "
                f"{limits.max_share:g}"
            )
        scales: dict[Piece, dict[int, float]] = {}
        for piece, norms in claims.norms.items():
            ratio = limits.max_norm_ratio
            assert ratio is not None
            own = (
                claims if piece.begin else replace(claims, apart=torch.full_like(claims.apart, -1))
            )
            for client, norm, longest in _long_steps(own, norms, ratio):
                scales.setdefault(piece, {})[client] = longest / norm
                said = (
                    f"{piece.name}: of norm {norm:.3g}, shortened to {longest:.3g}, by "
                    f"limits.max_norm_ratio = {ratio:g}"
                )
                reasons[client] = f"{reasons[client]}; {said}" if client in reasons else said
        return cls(examples, scales, reasons, refused)

    def apply(self, replies: Replies) -> Replies:
        """Return the replies with bounded numbers of examples and steps, but for refused ones."""
        if not self.refused.keys().isdisjoint(replies.clients.tolist()):
            refused = torch.tensor(sorted(self.refused))
            replies = replies.pick(torch.nonzero(~torch.isin(replies.clients, refused))[:, 0])
        clients = replies.clients.tolist()
        if self.reasons.keys().isdisjoint(clients):
            return replies
        names = {piece.column for piece in self.scales}
        names |= {"num_examples"} if self.examples else set()
        changed = {name: replies.columns[name].clone() for name in sorted(names)}
        for n, client in enumerate(clients):
            if client in self.examples:
                changed["num_examples"][n] = self.examples[client]
            for piece, scales in self.scales.items():
                if client not in scales:
                    continue
                values = piece.of(changed[piece.column][n])
                if piece.column == "losses":  # the smaller ones stay, by which it was compared
                    values.clamp_(max=float(values.norm()) * scales[client])
                else:
                    # The step keeps its direction: s <- s min(1, longest / |s|).
                    values.mul_(scales[client])
        return replace(replies, columns={**replies.columns, **changed})


def _pieces(
    request: Request, replies: Replies, column: str, layout: Layout | None
) -> Iterator[Piece]:
    """Yield the pieces of a column: trained weights, and running statistics, often far larger."""
    end = replies.columns[column].shape[-1]
    cut = first_statistic(request, layout, end)
    yield Piece(column, 0, cut, column)
    if cut < end:
        yield Piece(column, cut, end, f"{column} of statistics")


def _heavy_clients(claims: Claims, share: float) -> Iterator[tuple[int, int, int]]:
    """Yield the clients with too many examples: client, claimed number, allowed number."""
    if claims.counts is None:
        return
    allowed = within_shares(claims.counts, claims.clusters, share)
    high = allowed < claims.counts
    columns = (claims.clients, claims.counts, allowed)
    yield from zip(*(column[high].tolist() for column in columns), strict=True)


def _long_steps(claims: Claims, norms: Tensor, ratio: float) -> Iterator[tuple[int, float, float]]:
    """Yield the clients with too long steps: client, norm of the step, allowed norm."""
    longest = torch.full_like(norms, longest_of(norms, ratio))
    for cluster in torch.unique(claims.apart[claims.apart >= 0]).tolist():
        members = claims.apart == cluster
        own = longest_of(norms[members], ratio)
        # A cluster with larger steps than the others is measured by its own median.
        longest[members] = longest[members].clamp(min=0.0 if own == inf else own)
    long = norms > longest
    found = (claims.clients[long], norms[long], longest[long])
    yield from zip(*(each.tolist() for each in found), strict=True)


def _scaled(
    request: Request, replies: Replies, limits: Limits, layout: Layout | None
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return magnitudes (N, S) of numbers on the scale of the data, and their floors (S,)."""
    found = {}
    for name in STEPS:
        column = replies.columns.get(name)
        if column is None or column.dim() < 2 or not column.is_floating_point():
            continue
        width = column.shape[-1]
        first = first_scaled(name, request, layout, width, limits)
        if first == width:
            continue
        values = column[..., first:].abs()
        if name == "update":
            assert layout is not None
            allowed = floors(request, layout, width, limits.max_value)
            allowed = allowed.expand(values.shape[1:]).flatten()
            found[name] = values.flatten(1).double(), allowed
        else:  # directions, which are compared as a whole
            most = torch.tensor([limits.max_value], dtype=torch.double)
            found[name] = values.flatten(1).amax(1, keepdim=True).double(), most
    return found


def _beyond_others(claims: Claims, times: float) -> dict[int, str]:
    """Return the clients with a number far beyond most clients' numbers, with the reasons."""
    refused: dict[int, str] = {}
    for name, values in claims.scaled.items():
        usual = claims.usual(values)
        # Absolute bounds can't hold for statistics and gradients: their scale is that of the
        # inputs.
        beyond = values > (times * usual).maximum(claims.allowed[name])
        what = "running statistics" if name == "update" else name
        for n in torch.nonzero(beyond.any(1))[:, 0].tolist():
            at = int(beyond[n].int().argmax())
            refused[int(claims.clients[n])] = (
                f"{what}: {float(values[n, at]):.3g}, where most clients send "
                f"{float(usual[n, at]):.3g} or less: more than limits.max_value = {times:g} times "
                "that; give all clients inputs in the same units"
            )
    return refused
