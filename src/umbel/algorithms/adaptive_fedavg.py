"""Adaptive-FedAvg: Canonaco et al., Adaptive federated learning in presence of concept drift,
IJCNN 2021."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Setup, State, federate, one_model
from umbel.checks import check
from umbel.client.work import LocalTraining
from umbel.flow import Flow
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context


@dataclass(frozen=True)
class AdaptiveState(State):
    mean: Tensor  # (P,): moving average of the model
    deviation: float = 0.0  # moving average of the squared deviation from it
    ratio: float = 0.0  # moving average of its growth
    updates: int = 0  # t, the rounds so far
    rate: float = 1.0  # share of the learning rate in the next round


@dataclass(frozen=True)
class AdaptiveFedAvg(Algorithm[AdaptiveState]):
    """FedAvg whose learning rate falls with the rounds, and rises when the model begins to move.

    Canonaco et al. 2021. After round t, m_t = b1 m_{t-1} + (1 - b1) theta_t, and s_t = b2 s_{t-1} +
    (1 - b2) d_t, with d_t the mean over the weights of (theta_t - m_{t-1})^2; g_t = b3 g_{t-1} + (1
    - b3) s_t / s_{t-1}. All three are divided by 1 - b^t. Clients then train at the rate min(1, g_t
    / t) times that of `local`.
    """

    betas: tuple[float, float, float] = (0.7, 0.3, 0.7)  #: b1, b2, b3, each in [0, 1)
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        fine = all(0 <= beta < 1 for beta in self.betas)
        check(fine, "betas", self.betas, "three numbers in [0, 1)")

    def init(self, setup: Setup) -> AdaptiveState:
        first = one_model(setup)
        return AdaptiveState(first.models, first.labels, torch.zeros_like(first.models[0]).double())

    def round(self, state: AdaptiveState, ctx: Context) -> Flow[AdaptiveState]:
        local = replace(self.local, lr=self.local.lr * state.rate)
        after = yield from federate(state, ctx, local, self.averaging)
        b1, b2, b3 = self.betas
        before, now = state.updates, state.updates + 1
        theta, count = after.models[0].double(), ctx.layout.num_weights
        mean = state.mean / (1 - b1**before) if before else state.mean
        square = float((theta - mean)[:count].square().mean())
        deviation = b2 * state.deviation + (1 - b2) * square
        was = state.deviation / (1 - b2**before) if before else 0.0
        growth = deviation / (1 - b2**now) / was if was else 1.0
        ratio = b3 * state.ratio + (1 - b3) * growth
        return replace(
            after,
            mean=b1 * state.mean + (1 - b1) * theta,
            deviation=deviation,
            ratio=ratio,
            updates=now,
            rate=min(1.0, ratio / (1 - b3**now) / now),
        )

    def measure(self, state: AdaptiveState) -> Mapping[str, float]:
        return {"rate": state.rate}
