"""PACFL: Vahidian et al., Efficient distribution similarity identification in clustered federated
learning via principal angles between client data subspaces, AAAI 2023, Algorithm 1."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from umbel.algorithms.base import (
    Algorithm,
    Assigned,
    Setup,
    State,
    Traits,
    check_clustered,
    federate,
    one_model,
)
from umbel.checks import check_least, check_memory
from umbel.client.work import LocalTraining, PrincipalVectors, Work
from umbel.flow import Flow
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Sample, principal_vectors
from umbel.server.clustering import agglomerate, check_cut, orthonormal_bases, principal_angles
from umbel.server.repeated_rows import model_of_each

log = logging.getLogger(__name__)

SHARED = (
    "num_vectors: subspaces of %d and %d dimensions share a direction in inputs of %d values, "
    'whatever the data, and their smallest angle is 0: give fewer vectors, or angle = "sum"'
)

WHOLE = (
    "num_vectors: subspaces of %d dimensions hold all inputs of %d values, and all angles between "
    "them are 0, whatever the data: give fewer vectors, or, if there is one value, another method"
)


@dataclass(frozen=True)
class PACFLState(State):
    placed: Tensor  # (M,) bool: whether the client has sent its vectors
    bases: Tensor  # (M, D, Q) double, orthonormal basis of each client; zero if none was sent


@dataclass(frozen=True)
class PACFL(Algorithm[PACFLState]):
    """Cluster clients before training by the subspaces of their data; then average within clusters.

    Vahidian et al. 2023, Algorithm 1. In round 0 every client is asked, whatever the participation,
    for the p leading left singular vectors of its data (with `per_class`, p for each class, as in
    the authors' code). The server clusters by the smallest principal angles between their spans
    (eq. 3), or by the sums of all angles (eq. 4).

    A client that did not answer is served the model of the largest cluster, and trains none. When
    it is next in a cohort it is asked for its vectors again, and joins the cluster with the
    smallest mean angle to its members.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    num_clusters: int | None = None  #: K; give either this or `threshold`
    threshold: float | None = None  #: clusters at this angle or more, in degrees, are not merged
    num_vectors: int = 3  #: p, the number of vectors that a client sends
    per_class: bool = False  #: whether a client sends p vectors for each class
    #: distance: the smallest principal angle, or the sum of all
    angle: Literal["smallest", "sum"] = "smallest"
    linkage: Literal["complete", "average", "single"] = "average"  #: distance between clusters
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        # There is no default: which angles are large depends on the data.
        check_cut(self.num_clusters, self.threshold)
        check_least(self, 1, "num_vectors")

    @property
    def sends(self) -> tuple[Work, ...]:
        # Rounds add the sizes of inputs and outputs.
        classes = 1 if self.per_class else None
        return self.local, PrincipalVectors(self.num_vectors, 1, classes)

    def init(self, setup: Setup) -> PACFLState:
        first = one_model(setup)
        return PACFLState(
            first.models,
            first.labels,
            placed=torch.zeros(setup.num_clients, dtype=torch.bool),
            bases=torch.zeros(setup.num_clients, 0, 0, dtype=torch.double),
        )

    def round(self, state: PACFLState, ctx: Context) -> Flow[PACFLState]:
        if not state.placed.any():
            state = yield from self._cluster(state, ctx.everyone)
        else:
            state = yield from self._admit(state, ctx)
        known = ctx.asking(ctx.cohort[state.placed[ctx.cohort]])
        return (yield from federate(state, known, self.local, self.averaging))

    def assign(self, state: PACFLState, ctx: Context) -> Flow[Assigned]:
        check_clustered(bool(state.placed.any()))
        sent = yield from principal_vectors(ctx, self.num_vectors, self.per_class)
        angles = self._to_clusters(state, orthonormal_bases(sent.vectors))
        return Assigned(sent.clients, angles, "mean angle to members in degrees")

    def evidence(self, state: PACFLState, sample: Sample) -> Mapping[str, Tensor]:
        placed = torch.nonzero(state.placed)[:, 0]
        if not len(placed):
            return {}
        clients = placed[sample(len(placed))]
        bases = state.bases[clients]
        return {"clients": clients, "distance": principal_angles(bases, bases, self.angle).float()}

    def _cluster(self, state: PACFLState, ctx: Context) -> Flow[PACFLState]:
        """Before training: all clients' subspaces, their angles, and a model for each cluster."""
        self._check_room(ctx)
        sent = yield from principal_vectors(ctx, self.num_vectors, self.per_class)
        if not len(sent.clients):
            return state
        bases = orthonormal_bases(sent.vectors)
        self._warn_if_shared(bases)
        # With fewer clients than clusters, each client is a cluster.
        wanted = self.num_clusters
        number = None if wanted is None else min(wanted, len(bases))
        with ctx.clustering:
            # (N, N) in degrees: eq. 3, the smallest principal angle, or eq. 4, the sum of all.
            angles = principal_angles(bases, bases, self.angle)
            clusters = agglomerate(angles, self.linkage, number, self.threshold)
        sizes = torch.bincount(clusters)
        # A client that did not answer is served the largest cluster's model, and sends its vectors
        # later.
        largest = sizes.argmax().expand(ctx.num_clients)
        everyones = bases.new_zeros(ctx.num_clients, *bases.shape[1:])
        return PACFLState(
            models=model_of_each(state.models, len(sizes)),
            labels=largest.index_copy(0, sent.clients, clusters),
            placed=state.placed.index_fill(0, sent.clients, True),
            bases=everyones.index_copy(0, sent.clients, bases),
        )

    def _admit(self, state: PACFLState, ctx: Context) -> Flow[PACFLState]:
        """Clients without a cluster send their vectors, and join the nearest cluster."""
        late = ctx.cohort[~state.placed[ctx.cohort]]
        if not len(late):
            return state
        asked = ctx.asking(late, optional=True)
        sent = yield from principal_vectors(asked, self.num_vectors, self.per_class)
        if not len(sent.clients):
            return state
        bases = orthonormal_bases(sent.vectors)
        nearest = self._to_clusters(state, bases).argmin(1)
        return replace(
            state,
            labels=state.labels.index_copy(0, sent.clients, nearest),
            placed=state.placed.index_fill(0, sent.clients, True),
            bases=state.bases.index_copy(0, sent.clients, bases),
        )

    def _check_room(self, ctx: Context) -> None:
        """Raise `UsageError` if all clients' vectors and their bases do not fit in memory."""
        size = prod(ctx.input_shape)
        each = min(self.num_vectors, size) * (ctx.num_outputs if self.per_class else 1)
        said = f"vectors of {ctx.num_clients:,} clients, {each:,} of {size:,} values each"
        check_memory(2 * ctx.num_clients * each * size * torch.double.itemsize, said)

    def _warn_if_shared(self, bases: Tensor) -> None:
        """Warn if subspaces (N, D, Q) share directions only because their dimensions are large."""
        # Two subspaces of dimensions p and q in R^D share a direction if p + q > D.
        size, ranks = bases.shape[1], (bases != 0).any(1).sum(1).sort(descending=True).values
        if len(bases) < 2:
            return
        if int(ranks[1]) == size:
            log.warning(WHOLE, size, size)
        elif self.angle == "smallest" and int(ranks[:2].sum()) > size:
            log.warning(SHARED, int(ranks[0]), int(ranks[1]), size)

    def _to_clusters(self, state: PACFLState, bases: Tensor) -> Tensor:
        """Mean angles (N, K) between these subspaces and those of each cluster's members."""
        angles = principal_angles(bases, state.bases[state.placed], self.angle)
        # (M', K) with one 1 in each row: angles @ member sums the angles to each cluster's members.
        member = one_hot(state.labels[state.placed], len(state.models)).double()
        # All members of a cluster may have left.
        return (angles @ member / member.sum(0)).nan_to_num(torch.inf)
