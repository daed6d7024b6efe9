"""Bounds on how far one client moves a model: its share of the weight, its step's length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from umbel.engines.validation import Limits
from umbel.flow import Replies, Request
from umbel.summary import in_short

STEPS = ("update", "gradient")
"""Columns whose rows move models."""


@dataclass
class Bounds:
    """Bounds of one request, whose replies may come in several blocks."""

    request: Request
    limits: Limits
    counts: list[Tensor] = field(default_factory=list)  # of the blocks so far
    clusters: list[Tensor] = field(default_factory=list)  # whose average each enters, likewise
    norms: dict[str, list[Tensor]] = field(default_factory=dict)  # by column, likewise
    bounded: dict[int, str] = field(default_factory=dict)  # client: what was bounded

    __repr__ = in_short

    def apply(self, replies: Replies) -> Replies:
        """Return the replies with bounded numbers of examples and steps."""
        steps = [name for name in STEPS if name in replies.columns]
        if not steps or self.request.work.split != "train" or not len(replies.clients):
            return replies
        changed: dict[str, Tensor] = {}
        if "num_examples" in replies.columns:
            changed |= self._examples(replies)
        if self.limits.max_norm_ratio is not None:
            for name in steps:
                changed |= self._steps(replies, name, self.limits.max_norm_ratio)
        return replace(replies, columns={**replies.columns, **changed}) if changed else replies

    def _examples(self, replies: Replies) -> Mapping[str, Tensor]:
        counts = replies.columns["num_examples"]
        self.counts.append(counts)
        self.clusters.append(self._clusters(replies))
        allowed = self._allowed(torch.cat(self.counts), torch.cat(self.clusters))[-len(counts) :]
        high = allowed < counts
        if not high.any():
            return {}
        for client, claimed, most in zip(
            replies.clients[high].tolist(),
            counts[high].tolist(),
            allowed[high].tolist(),
            strict=True,
        ):
            self.bounded[client] = (
                f"num_examples: {claimed:,} counted as {most:,}, by limits.max_share = "
                f"{self.limits.max_share:g}"
            )
        return {"num_examples": allowed}

    def _clusters(self, replies: Replies) -> Tensor:
        """(N,) the cluster whose average each client enters, as it says or as it was asked."""
        reduction, theta = self.request.reduction, self.request.each.get("theta")
        if "chosen" in replies.columns:
            return replies.columns["chosen"]
        if reduction is not None and reduction.labels is not None:
            return reduction.labels[replies.clients]
        if theta is None:
            return torch.zeros_like(replies.clients)
        # Methods average over those who are sent the same model.
        asked, places = self.request.clients.sort()
        return theta.index[places[torch.searchsorted(asked, replies.clients)]]

    def _allowed(self, counts: Tensor, clusters: Tensor) -> Tensor:
        """Numbers of examples (N,) with no more than its share in any average.

        Averages of parameters that clusters share are over all clients: there, too.
        """
        share, asked = self.limits.max_share, len(self.request.clients)
        if share >= 1:
            return counts
        allowed = counts.clone()
        _, index, sizes = torch.unique(clusters, return_inverse=True, return_counts=True)
        expected = (sizes * (asked / len(counts))).round().long()
        for cluster in _heavy(counts, index, sizes, expected, share):
            members = index == cluster
            if sizes[cluster] == 1:  # who else is in it has not answered yet
                allowed[members] = bounded_weights(counts, share, int(expected[cluster]))[members]
            else:
                allowed[members] = bounded_weights(counts[members], share, int(expected[cluster]))
        return bounded_weights(allowed, share, asked)

    def _steps(self, replies: Replies, name: str, ratio: float) -> Mapping[str, Tensor]:
        rows = replies.columns[name]
        # Row by row: a copy of all of them in double precision takes five times as long.
        norms = torch.stack([torch.linalg.vector_norm(r, dtype=torch.double) for r in rows])
        self.norms.setdefault(name, []).append(norms)
        moved = torch.cat(self.norms[name])
        moved = moved[moved > 0]  # who stays where it is says nothing of how far is too far
        if not len(moved):
            return {}
        longest = ratio * moved.median()
        long = norms > longest
        if not long.any():
            return {}
        for client, norm in zip(replies.clients[long].tolist(), norms[long].tolist(), strict=True):
            self.bounded[client] = (
                f"{name}: of norm {norm:.3g}, shortened to {longest:.3g}, by "
                f"limits.max_norm_ratio = {ratio:g}"
            )
        scale = (longest / norms.clamp(min=longest)).to(rows.dtype)
        return {name: rows * scale.reshape(-1, *[1] * (rows.dim() - 1))}


def _heavy(
    counts: Tensor, index: Tensor, sizes: Tensor, expected: Tensor, share: float
) -> list[int]:
    """The clusters in which a client may have more than its share; most often there is none."""
    claimed = counts.double()
    sums = torch.zeros(len(sizes), dtype=torch.double).index_add_(0, index, claimed)
    like_the_others = (claimed.sum() - claimed) / max(1, len(claimed) - 1)
    others = torch.where(sizes[index] == 1, like_the_others, sums[index] - claimed)
    heavy = (claimed * (1 - share) > share * others) & (expected[index] > 1)
    return sorted(set(index[heavy].tolist()))


def bounded_weights(counts: Tensor, share: float, num_clients: int) -> Tensor:
    """Lower numbers of examples (N,) until none is more than this share of all clients' together.

    Clients whose replies are still to come, of `num_clients`, are taken to be like the others. A
    single client is not bounded: it is alone.
    """
    if len(counts) < 2 or share >= 1:
        return counts
    unseen = (num_clients - 1) / (len(counts) - 1)
    least, bounded = counts.double().clamp(max=float(counts.min())), counts.double()
    for _ in range(ROUNDS):
        others = (bounded.sum() - bounded) * unseen
        lower = torch.minimum(bounded, share / (1 - share) * others).floor().maximum(least)
        if torch.equal(lower, bounded):
            break
        bounded = lower
    return bounded.to(counts.dtype)


ROUNDS = 100
"""Passes in which several clients above their share are lowered; one passes for one client."""
