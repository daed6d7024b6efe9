"""FedAvg in given clusters, for example from an attribute, from advice, or from another run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Known, Setup, State, check_clusters, federate
from umbel.checks import UsageError, check
from umbel.client.work import LocalTraining
from umbel.flow import Flow
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context
from umbel.summary import few


@dataclass(frozen=True)
class FixedClusters(Algorithm[State]):
    """Average within clusters that are given before training, such as those of `umbel advise`.

    >>> umbel.FixedClusters(clusters=(0, 0, 1, 1)).clusters
    (0, 0, 1, 1)

    With one cluster for all clients it is FedAvg (McMahan et al. 2017, Algorithm 1).
    """

    #: the cluster of each client, in the order of the federation, or of `clients`; (): one cluster
    clusters: tuple[int, ...] = ()
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged
    #: names of the clients in `clusters`; clients that are not in the federation are allowed
    clients: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fine = min(self.clusters, default=0) >= 0
        check(fine, "clusters", self.clusters, "numbers of 0 or more")
        named = len(self.clients) in (0, len(self.clusters))
        named &= len(set(self.clients)) == len(self.clients)
        expected = f"{len(self.clusters):,} different names, one for each number in clusters"
        check(named, "clients", f"{len(self.clients):,} names", expected)

    def check(self, known: Known) -> None:
        super().check(known)
        if not self.clients:
            check_clusters(self.clusters, known)

    def init(self, setup: Setup) -> State:
        clusters = self._by_name(setup.names) if self.clients else self.clusters
        check_clusters(clusters, setup)
        # Numbers may have gaps, such as 0 and 5: labels are their positions, 0 to K-1.
        numbers = torch.unique(torch.tensor(self.clusters or (0,)))
        labels = torch.searchsorted(numbers, torch.tensor(clusters or (0,) * setup.num_clients))
        return State(setup.copies(len(numbers)), labels)

    def members(self, state: State, kept: Tensor, setup: Setup) -> State:  # noqa: ARG002
        return replace(state, labels=self.init(setup).labels)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        return (yield from federate(state, ctx, self.local, self.averaging))

    def _by_name(self, names: Sequence[str]) -> tuple[int, ...]:
        """The clusters of these clients. Raises `UsageError` if one has none."""
        known = dict(zip(self.clients, self.clusters, strict=True))
        strangers = [name for name in names if name not in known]
        if strangers or not names:
            who = few(strangers) or "clients without names"
            how = "find the clusters of all clients again, or leave these out"
            raise UsageError(f"algorithm.clients: no cluster was given for {who}; {how}")
        return tuple(known[name] for name in names)
