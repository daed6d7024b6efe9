"""FedAvg in clusters that are given: by an attribute, by advice, by another run."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from umbel.algorithms.base import Algorithm, Known, Setup, State, federate
from umbel.algorithms.fitting import check_clusters
from umbel.checks import check
from umbel.client.work import LocalTraining
from umbel.flow import Flow
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context


@dataclass(frozen=True)
class FixedClusters(Algorithm[State]):
    """Average within clusters that are known before training, such as those of `umbel advise`.

    >>> umbel.FixedClusters(clusters=(0, 0, 1, 1)).clusters
    (0, 0, 1, 1)

    With one cluster for all it is FedAvg (McMahan et al. 2017, Algorithm 1).
    """

    #: the cluster of each client, in the order of the federation; (): one cluster
    clusters: tuple[int, ...] = ()
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        fine = min(self.clusters, default=0) >= 0
        check(fine, "clusters", self.clusters, "numbers of 0 or more")

    def check(self, known: Known) -> None:
        super().check(known)
        check_clusters(self.clusters, known)

    def init(self, setup: Setup) -> State:
        check_clusters(self.clusters, setup)
        clusters = self.clusters or (0,) * setup.num_clients
        labels = torch.unique(torch.tensor(clusters), return_inverse=True)[1]
        return State(setup.new_models(1).repeat(int(labels.max()) + 1, 1), labels)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        return (yield from federate(state, ctx, self.local, self.averaging))
