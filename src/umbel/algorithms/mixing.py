"""Mixtures of models, with weights that each client remembers: the base of FedEM and FedRC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Assigned, Served, Setup, State, Traits
from umbel.checks import check_least
from umbel.client.work import LocalTraining, MixtureTraining, MixtureWeights, Work
from umbel.client.work.local_training import check_no_pull
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Sample, TrainedMixture, mixture_weights, train_mixture
from umbel.server.repeated_rows import opinions


@dataclass(frozen=True)
class MixtureState(State):
    """`models` holds the K components; a client's label is the one with its largest weight."""

    weights: Tensor  # (M, K) pi, the mixture weights that each client remembers


S = TypeVar("S", bound=MixtureState)


@dataclass(frozen=True)
class Mixing(Algorithm[S]):
    """Each client predicts by all K models, with weights of its own; it trains all of them."""

    traits: ClassVar[Traits] = Traits(only_trains=None, mixes=True)

    num_clusters: int = 3  #: K, the components
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        check_least(self, 1, "num_clusters")
        check_no_pull(self.local)

    @property
    def sends(self) -> tuple[Work, ...]:
        return MixtureTraining(self.local), MixtureWeights()

    def label_shares(self, state: S, ctx: Context) -> Tensor | None:  # noqa: ARG002
        """The share (K, C) of each label in each component, by which q_i(k) is divided, if any."""
        return None

    def serve(self, state: S, ctx: Context) -> Flow[Served]:
        """The mixture, with weights that are updated for the current components."""
        memory, labels = Rows(state.weights, ctx.cohort), self.label_shares(state, ctx)
        fit = yield from mixture_weights(state.models, memory, ctx, labels)
        weights = state.weights.index_copy(0, fit.clients, fit.memory)[ctx.cohort]
        heaviest = weights.argmax(1)
        return Served(Rows(state.models, heaviest), heaviest, weights)

    def assign(self, state: S, ctx: Context) -> Flow[Assigned]:
        """Newcomers update equal weights; their cluster is the one with the largest weight."""
        memory = Rows(_equal(state.models), torch.zeros_like(ctx.cohort))
        labels = self.label_shares(state, ctx)
        fit = yield from mixture_weights(state.models, memory, ctx, labels)
        return Assigned(fit.clients, 1 - fit.memory.double(), "1 - weight of the component")

    def evidence(self, state: S, sample: Sample) -> Mapping[str, Tensor]:
        clients = sample(len(state.labels))
        return {"clients": clients, "weights": state.weights[clients]}

    def started(self, setup: Setup) -> MixtureState:
        """New components, and equal weights for everyone."""
        # The components must differ: equal components get equal shares of all examples, and stay
        # equal.
        models = setup.new_models(self.num_clusters, self.averaging.shared)
        nobody = torch.zeros(setup.num_clients, dtype=torch.long)
        return MixtureState(models, nobody, opinions(_equal(models), setup.num_clients))

    def trained(self, state: S, ctx: Context) -> Flow[tuple[MixtureState, TrainedMixture]]:
        """The round of all mixtures, and what clients answered."""
        memory, labels = Rows(state.weights, ctx.cohort), self.label_shares(state, ctx)
        # At the client: E-step, M-step of pi, and K trained components; `memory` (N, K) is pi.
        trained = yield from train_mixture(state.models, memory, ctx, self.local, labels)
        weights = state.weights.index_copy(0, trained.clients, trained.memory)
        # Row n K + k is client n's update of component k: theta_k moves by sum_i n_i update_ik /
        # sum_i n_i.
        component = torch.arange(self.num_clusters).repeat(len(trained.clients))
        examples = trained.num_examples.repeat_interleave(self.num_clusters)
        clients = trained.clients.repeat_interleave(self.num_clusters)
        rows = trained.update.flatten(0, 1)
        sums = self.averaging.sums(rows, component, examples, self.num_clusters, clients)
        step, moments = self.averaging.move(sums, ctx.layout, state.moments)
        models, labels = state.models + step, weights.argmax(1)
        return MixtureState(models, labels, weights, moments=moments), trained


def _equal(models: Tensor) -> Tensor:
    """(1, K) equal weights, for a client about which nothing is known."""
    return models.new_full((1, len(models)), 1 / len(models))
