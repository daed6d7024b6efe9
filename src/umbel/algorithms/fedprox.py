"""FedProx: Li et al., Federated optimization in heterogeneous networks, MLSys 2020, Algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from umbel.algorithms.base import Algorithm, Setup, State, federate, one_model
from umbel.checks import check, check_least
from umbel.client.work import LocalTraining, MeanLoss, Work
from umbel.flow import Flow
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context


@dataclass(frozen=True)
class FedProx(Algorithm[State]):
    """Train one model for everyone; a proximal term keeps clients near the model they received.

    It is FedAvg, but clients minimise their loss plus mu/2 |theta - received|^2 (Li et al. 2020,
    Algorithm 2).
    """

    mu: float = 0.01  #: weight of the proximal term; 0 is FedAvg
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        check_least(self, 0, "mu")
        expected = "0: for FedProx, set `mu` instead"
        check(self.local.proximal == 0, "local.proximal", self.local.proximal, expected)

    @property
    def sends(self) -> tuple[Work, ...]:
        return self._local, MeanLoss()

    def init(self, setup: Setup) -> State:
        return one_model(setup)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        return (yield from federate(state, ctx, self._local, self.averaging))

    @property
    def _local(self) -> LocalTraining:
        return replace(self.local, proximal=self.mu)
