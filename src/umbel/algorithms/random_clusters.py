"""FedAvg in random clusters: the effect of clusters of given sizes without any clustering."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Known, Setup, State, federate
from umbel.checks import check, check_least
from umbel.client.work import LocalTraining
from umbel.flow import Flow
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context


@dataclass(frozen=True)
class RandomClusters(Algorithm[State]):
    """Average within random clusters: the control for a clustered method.

    Clients are assigned once, before the first round, by the seed of the run. If a method is no
    better than this control with clusters of the same `sizes`, its choice of clusters has gained
    nothing. All clusters begin with the same model.
    """

    num_clusters: int = 2  #: K, clusters of nearly equal sizes, unless `sizes` are given
    sizes: tuple[int, ...] = ()  #: number of clients of each cluster; the sum is M
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        check_least(self, 1, "num_clusters")
        check(all(size >= 1 for size in self.sizes), "sizes", self.sizes, "1 or more each")

    def check(self, known: Known) -> None:
        super().check(known)
        if self.sizes and known.num_clients is not None:
            expected = f"sizes whose sum is the number of clients, {known.num_clients}"
            check(sum(self.sizes) == known.num_clients, "algorithm.sizes", self.sizes, expected)

    def init(self, setup: Setup) -> State:
        labels = self._in_order(setup.num_clients)
        order = np.random.default_rng(setup.seed).permutation(setup.num_clients)
        count = int(labels.max()) + 1
        return State(setup.copies(count), labels[torch.from_numpy(order)])

    def round(self, state: State, ctx: Context) -> Flow[State]:
        return (yield from federate(state, ctx, self.local, self.averaging))

    def _in_order(self, num_clients: int) -> Tensor:
        """The clusters (M,) before clients are shuffled."""
        if self.sizes:
            return torch.repeat_interleave(torch.arange(len(self.sizes)), torch.tensor(self.sizes))
        return torch.arange(num_clients) % self.num_clusters
