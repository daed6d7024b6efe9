"""FedEM: Marfoq et al., Federated multi-task learning under a mixture of distributions,
NeurIPS 2021, Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Assigned, Served, Setup, State, Traits
from umbel.checks import check
from umbel.client.work import LocalTraining, MixtureTraining, MixtureWeights, Work
from umbel.client.work.local_training import check_no_pull
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Sample, TrainedWithMemory, mixture_weights, train_mixture
from umbel.server.repeated_rows import opinions


@dataclass(frozen=True)
class FedEMState(State):
    """`models` holds the K components; a client's label is the one with its largest weight."""

    weights: Tensor  # (M, K) pi, the mixture weights that each client remembers


@dataclass(frozen=True)
class FedEM(Algorithm[FedEMState]):
    """Predict for each client with its own mixture of K models that are trained together.

    FedEM, Marfoq et al. 2021, models each client's data as a mixture of K components. E-step:
    q_i(k) in proportion to pi_k exp(-loss_k(x_i, y_i)). M-step: pi_k = mean_i q_i(k), and component
    k is trained on losses weighted by q_i(k), then averaged over the clients by n_i. A client
    starts from equal weights, and a lost reply leaves them unchanged. When a client is served, it
    takes one E-step and one M-step of pi only, with fixed components; so do newcomers. A client
    that does not answer keeps its last weights. A newcomer's cluster is the component with its
    largest weight after these steps.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None, mixes=True)

    num_clusters: int = 3  #: K, the components
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        check(self.num_clusters >= 1, "num_clusters", self.num_clusters, "1 or more")
        check_no_pull(self.local)

    @property
    def sends(self) -> tuple[Work, ...]:
        return MixtureTraining(self.local), MixtureWeights()

    def init(self, setup: Setup) -> FedEMState:
        # The components must differ: equal components get equal shares of all examples, and stay
        # equal.
        models = setup.new_models(self.num_clusters, self.averaging.shared)
        nobody = torch.zeros(setup.num_clients, dtype=torch.long)
        return FedEMState(models, nobody, opinions(_equal(models), setup.num_clients))

    def round(self, state: FedEMState, ctx: Context) -> Flow[FedEMState]:
        memory = Rows(state.weights, ctx.cohort)
        # At the client: E-step, M-step of pi, and K trained components; `memory` (N, K) is pi.
        trained = yield from train_mixture(state.models, memory, ctx, self.local)
        weights = state.weights.index_copy(0, trained.clients, trained.memory)
        models = state.models + self._step(trained, ctx)
        return replace(state, models=models, labels=weights.argmax(1), weights=weights)

    def serve(self, state: FedEMState, ctx: Context) -> Flow[Served]:
        """The mixture, with weights that are updated for the current components."""
        fit = yield from mixture_weights(state.models, Rows(state.weights, ctx.cohort), ctx)
        weights = state.weights.index_copy(0, fit.clients, fit.memory)[ctx.cohort]
        labels = weights.argmax(1)
        return Served(Rows(state.models, labels), labels, weights)

    def assign(self, state: FedEMState, ctx: Context) -> Flow[Assigned]:
        """Newcomers update equal weights; their cluster is the one with the largest weight."""
        memory = Rows(_equal(state.models), torch.zeros_like(ctx.cohort))
        fit = yield from mixture_weights(state.models, memory, ctx)
        return Assigned(fit.clients, 1 - fit.memory.double(), "1 - weight of the component")

    def evidence(self, state: FedEMState, sample: Sample) -> Mapping[str, Tensor]:
        clients = sample(len(state.labels))
        return {"clients": clients, "weights": state.weights[clients]}

    def _step(self, trained: TrainedWithMemory, ctx: Context) -> Tensor:
        """The mean update of each component: (N, K, P) -> (K, P)."""
        count = self.num_clusters
        component = torch.arange(count).repeat(len(trained.clients))
        examples = trained.num_examples.repeat_interleave(count)
        # Row n K + k is client n's update of component k: theta_k moves by sum_i n_i update_ik /
        # sum_i n_i.
        rows = trained.update.flatten(0, 1)
        return self.averaging.step(rows, component, examples, count, ctx.layout)


def _equal(models: Tensor) -> Tensor:
    """(1, K) equal weights, for a client about which nothing is known."""
    return models.new_full((1, len(models)), 1 / len(models))
