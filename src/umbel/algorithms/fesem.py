"""FeSEM: Xie et al., Multi-center federated learning, arXiv 2005.01026; with weights by examples it
is WeCFL: Ma et al., On the convergence of clustered federated learning, arXiv 2202.06187."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from umbel.algorithms.base import (
    Algorithm,
    Assigned,
    Served,
    Setup,
    State,
    Traits,
    with_lowest_loss,
)
from umbel.checks import check_least
from umbel.client.work import LocalTraining, MeanLoss, Work
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Sample, losses, train
from umbel.server.clustering import distances
from umbel.server.repeated_rows import opinions


@dataclass(frozen=True)
class FeSEMState(State):
    apart: Tensor  # (M, K): squared distances of the client's last trained model, NaN before


@dataclass(frozen=True)
class FeSEM(Algorithm[FeSEMState]):
    """Cluster clients by the distance of the models they trained from the models of the clusters.

    Xie et al., arXiv 2005.01026. Each client of the cohort trains the model of its cluster to w_i,
    and joins the cluster k with the smallest |w_i - Omega_k|^2 over trained values; then Omega_k
    becomes the mean of the w_i of its clients in the cohort. With `averaging.weights`
    "equal" it is FeSEM, by examples WeCFL.

    A client that is asked for the first time is in the cluster whose model has the lowest loss on
    its data (`first` "loss"). With "random", it is in a random one: from random models, distances
    are mostly those of the starts, so that clients stay where they are. Newcomers train the model
    with the lowest loss, and join the nearest one.
    """

    traits: ClassVar[Traits] = Traits(only_trains={"first": ("random",)})

    num_clusters: int = 2  #: K
    first: Literal["loss", "random"] = "loss"  #: how clients find their first cluster
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    #: how models are averaged
    averaging: Averaging = field(default_factory=lambda: Averaging("equal"))

    def __post_init__(self) -> None:
        check_least(self, 1, "num_clusters")

    @property
    def sends(self) -> tuple[Work, ...]:
        return self.local, MeanLoss()

    def init(self, setup: Setup) -> FeSEMState:
        models = setup.new_models(self.num_clusters, self.averaging.shared)
        draw = torch.Generator().manual_seed(setup.seed % 2**63)
        labels = torch.randint(self.num_clusters, (setup.num_clients,), generator=draw)
        if self.first == "loss":
            labels = torch.zeros_like(labels)
        unknown = torch.full((1, self.num_clusters), torch.nan).double()
        return FeSEMState(models, labels, opinions(unknown, setup.num_clients))

    def round(self, state: FeSEMState, ctx: Context) -> Flow[FeSEMState]:
        labels = yield from self._first_found(state, ctx)
        trained = yield from train(Rows(state.models, labels[ctx.cohort]), ctx, self.local)
        before = labels[trained.clients]
        # w_i (N, P): the models after training; only trained values are compared.
        found, cut = state.models[before] + trained.update, ctx.layout.num_weights
        with ctx.clustering:
            apart = distances(found[:, :cut], state.models[:, :cut], "l2") ** 2
        nearest = apart.argmin(1)
        # Omega_k moves by the mean of w_i - Omega_k over the clients that are now in cluster k.
        moves = trained.update + (state.models[before] - state.models[nearest])
        sums = self.averaging.sums(
            moves, nearest, trained.num_examples, self.num_clusters, trained.clients
        )
        step, moments = self.averaging.move(sums, ctx.layout, state.moments)
        return FeSEMState(
            models=state.models + step,
            labels=labels.index_copy(0, trained.clients, nearest),
            apart=state.apart.index_copy(0, trained.clients, apart),
            moments=moments,
        )

    def serve(self, state: FeSEMState, ctx: Context) -> Flow[Served]:
        """The model of the client's cluster; before its first round, that of its first cluster."""
        labels = yield from self._first_found(state, ctx)
        return Served(Rows(state.models, labels[ctx.cohort]), labels[ctx.cohort])

    def assign(self, state: FeSEMState, ctx: Context) -> Flow[Assigned]:
        """Newcomers train the model with the lowest loss, and join the nearest model."""
        fit = yield from losses(state.models, ctx)
        start = fit.losses.argmin(1)
        trained = yield from train(Rows(state.models, start), ctx.asking(fit.clients), self.local)
        cut = ctx.layout.num_weights
        # A client may answer the first request alone.
        began = start[torch.searchsorted(fit.clients, trained.clients)]
        found = state.models[began] + trained.update
        apart = distances(found[:, :cut], state.models[:, :cut], "l2") ** 2
        return Assigned(trained.clients, apart, "squared distance of the trained model")

    def profile(self, state: FeSEMState) -> Tensor:
        """(M, K) the squared distances by which clients are clustered."""
        return state.apart

    def evidence(self, state: FeSEMState, sample: Sample) -> Mapping[str, Tensor]:
        clients = sample(len(state.labels))
        return {"clients": clients, "features": state.apart[clients]}

    def _first_found(self, state: FeSEMState, ctx: Context) -> Flow[Tensor]:
        """The labels (M,), with a first cluster for clients of the cohort that have none."""
        unknown = state.apart[:, 0].isnan() & (self.first == "loss")
        return (yield from with_lowest_loss(state, ctx, unknown))
