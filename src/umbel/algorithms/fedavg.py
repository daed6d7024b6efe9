"""FedAvg: McMahan et al., Communication-efficient learning of deep networks from decentralized
data, AISTATS 2017, Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass, field

from umbel.algorithms.base import Algorithm, Setup, State, federate, one_model
from umbel.client.work import LocalTraining
from umbel.flow import Flow
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context


@dataclass(frozen=True)
class FedAvg(Algorithm[State]):
    """Train one model for everyone: the average of the models that the cohort trained.

    McMahan et al. 2017, Algorithm 1.
    """

    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def init(self, setup: Setup) -> State:
        return one_model(setup)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        return (yield from federate(state, ctx, self.local, self.averaging))
