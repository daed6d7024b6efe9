"""Any method whose clients are watched: those that are long suspicious are set aside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from umbel.algorithms.base import (
    KeptState,
    Setup,
    Traits,
    Wrapper,
)
from umbel.flow import STEPS, Flow, Replies, Request, clusters_in, relay
from umbel.server.ask import Context
from umbel.server.robust_rules import median, products, squared_distances
from umbel.server.shares import norms_of

QUARANTINE = "in quarantine: "
"""Beginning of the reason why a suspicious client's reply was not used."""

RISE, FALL = 0.4, 0.1
"""Part of the way to a round's evidence that suspicion goes: up, and down."""

MOST = 10.0
"""Largest evidence of a round, so that a client is let back some rounds after its last lie."""

RECENT = 0.1
"""Part of a client's usual cosine that is new in each round."""

SPREAD, OF_COSINES = 0.2, 0.1
"""Smallest usual spread of logarithms, and of usual cosines: honest clients may be all alike."""

OPPOSED = 8.0
"""Evidence of a step straight against its cluster's."""

MOVED = 3.0
"""Evidence of a change of cluster in a round in which nobody else changes."""

TINY = 1e-9
"""Smallest length beside the median one of which logarithms are taken."""


@dataclass(frozen=True)
class Watched(Wrapper[KeptState]):
    """A method that sets aside the replies of suspicious clients; `limits.quarantine` adds it.

    Each round has evidence e against a client, at most 10, the largest of: how unusual are its
    step's length, its distance from its two nearest neighbours in its cluster, and the usual cosine
    of its steps with the cluster's median if that is negative, in median absolute deviations; how
    far it is against that median now; and a change of cluster that few share. What is usual is so
    among clients that are not set aside. Suspicion begins at 0 and goes a part of the way to e: 0.4
    up, and 0.1 down. While it is above `threshold`, the client's replies are set aside; it is asked
    all the same, so that it is let back. In a cluster with fewer than three answers suspicion stays
    as it is, and of those that answer less than half are set aside.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    threshold: float  #: suspicion above which replies are set aside

    def set_aside(self, state: KeptState) -> dict[int, str]:
        """The clients whose replies the last round has set aside, with the reason."""
        aside = torch.nonzero(state.kept[:, 2])[:, 0].tolist()
        why = f"{QUARANTINE}suspicion above limits.quarantine = {self.threshold:g}"
        return dict.fromkeys(aside, why)

    def init(self, setup: Setup) -> KeptState:
        # (M, 5): suspicion; cluster, -1 before it is known; whether set aside; and a sum of cosines
        # with its weight.
        kept = torch.tensor([0.0, -1, 0, 0, 0], dtype=torch.float64).repeat(setup.num_clients, 1)
        return KeptState.around(self.of.init(setup), kept)

    def round(self, state: KeptState, ctx: Context) -> Flow[KeptState]:
        before, kept = state.kept, state.kept.clone()
        kept[:, 2] = 0
        found = torch.full((len(kept),), torch.nan, dtype=torch.float64)

        def ask(request: Request) -> Flow[Replies]:
            answer = yield replace(request, reduction=None)
            clients = answer.clients
            calm = before[clients, 0] <= self.threshold
            about = before[:, 1], calm, ctx.layout.num_weights
            told, cosines = evidence_in(request, answer, *about)
            known = ~cosines.isnan()
            both = torch.stack([cosines, torch.ones_like(cosines)], 1)[known]
            now = before[clients[known], 3:] * (1 - RECENT) + both * RECENT
            kept[clients[known], 3:] = now
            usual = now[:, 0] / now[:, 1]
            # A minority in a cluster is less alike than others, but not against them.
            against = _deviations(usual, calm[known], OF_COSINES) * (usual < 0)
            told[known] = told[known].fmax(against)
            found[clients] = found[clients].fmax(told.clamp(max=MOST))
            if "chosen" in answer.columns:
                kept[clients, 1] = answer.columns["chosen"].double()
            kept[:, 0] = suspicion_after(before[:, 0], found)
            high = clients[kept[clients, 0] > self.threshold]
            aside = high[kept[high, 0].argsort(descending=True)][: (len(clients) - 1) // 2]
            kept[aside, 2] = 1
            answer = answer.pick(torch.nonzero(~torch.isin(clients, aside))[:, 0])
            if request.reduction is None:
                return answer
            sums, columns = request.reduction.of(answer.clients, answer.columns)
            return replace(answer, columns=columns, sums=sums)

        inner = yield from relay(self.of.round(state.inner[0], ctx), ask)
        return KeptState.around(inner, kept)


def suspicion_after(before: Tensor, evidence: Tensor) -> Tensor:
    """Suspicion (M,) after a round with this evidence, NaN where there is none."""
    rate = torch.where(evidence > before, RISE, FALL)
    return torch.where(evidence.isnan(), before, before + rate * (evidence - before))


def evidence_in(
    request: Request, replies: Replies, before: Tensor, calm: Tensor, width: int
) -> tuple[Tensor, Tensor]:
    """Evidence (N,) against each client in its reply, and cosines (N,), NaN if there are none.

    `before` (M,) are clusters, -1 unknown; `calm` (N,) are those not suspicious before; `width` is
    the number of trained values of a model.
    """
    found = torch.full((len(replies.clients),), torch.nan, dtype=torch.float64)
    cosines, columns = found.clone(), replies.columns
    for name in STEPS:
        if name in columns and request.work.split == "train":
            rows = columns[name].flatten(1)[:, :width]
            rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
            told, cosines = of_steps(rows, clusters_in(request, replies), calm)
            found = found.fmax(told)
    if "chosen" in columns:
        last, now = before[replies.clients], columns["chosen"]
        moved = ((last >= 0) & (last != now)).double()
        found = found.fmax(MOVED * moved * (1 - moved.mean()))
    return found, cosines


def of_steps(rows: Tensor, clusters: Tensor, calm: Tensor) -> tuple[Tensor, Tensor]:
    """Evidence (N,) in steps (N, P) of clients in these clusters (N,), and their cosines (N,).

    Both are NaN in clusters of fewer than three. What is usual is so among the `calm` (N,).
    """
    # (3, N): logarithms of lengths and of distances, beside the usual ones; cosines
    traits = torch.full((3, len(rows)), torch.nan, dtype=torch.float64)
    for cluster in torch.unique(clusters).tolist():
        mine = torch.nonzero(clusters == cluster)[:, 0]
        if len(mine) < 3:
            continue
        usual = mine[calm[mine]] if calm[mine].sum() > 1 else mine
        inner, middle = products(rows[mine]), median(rows, usual)
        norms, apart = inner.diagonal().sqrt(), squared_distances(inner).fill_diagonal_(torch.inf)
        near = apart.sqrt().topk(2, largest=False).values.mean(1)
        of_usual = torch.isin(mine, usual)
        traits[0, mine] = _beside_median(norms, of_usual)
        traits[1, mine] = _beside_median(near, of_usual)
        along = (rows[mine] @ middle).double()
        traits[2, mine] = along / (norms * norms_of(middle[None])).clamp(min=1e-300)
    known = ~traits[2].isnan()
    lengths, near, cosines = traits[:, known]
    unusual = [_deviations(each, calm[known], SPREAD) for each in (lengths, near)]
    found = torch.full_like(traits[2], torch.nan)
    found[known] = torch.stack([*unusual, OPPOSED * -cosines]).amax(0).clamp(min=0)
    return found, traits[2]


def _deviations(values: Tensor, calm: Tensor, least: float) -> Tensor:
    """How far values (N,) are off their usual median, in its deviations, or `least` if larger."""
    usual = values[calm] if calm.any() else values
    if not len(values):
        return values
    off = (values - usual.median()).abs()
    return off / (1.4826 * (usual - usual.median()).abs().median()).clamp(min=least)


def _beside_median(lengths: Tensor, usual: Tensor) -> Tensor:
    """Logarithms of lengths (N,) beside the median of the usual ones."""
    middle = lengths[usual].median()
    floor = TINY * middle + 1e-300
    return (lengths.maximum(floor) / middle.maximum(floor)).log()
