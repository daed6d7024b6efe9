"""A method of your own, in one file: cluster the clients once by k-means on their updates.

Run it with `umbel run examples/my_algorithm.toml` from the folder above.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch.nn.functional import normalize

from umbel.method import (
    Algorithm,
    Averaging,
    Context,
    Flow,
    LocalTraining,
    Rows,
    Setup,
    State,
    check,
    check_num_clusters,
    federate,
    k_means,
    one_model,
    train,
)


@dataclass(frozen=True)
class OneShotKMeans(Algorithm[State]):
    """FedAvg, then k-means on the directions of everyone's updates, then FedAvg per cluster.

    In the round of clustering everyone is asked; a client that does not answer stays in cluster 0,
    and if too few answer, the next round tries again.
    """

    num_clusters: int = 4
    cluster_round: int = 5  # the round, counted from 0
    local: LocalTraining = field(default_factory=LocalTraining)
    averaging: Averaging = field(default_factory=Averaging)

    def __post_init__(self) -> None:
        check(self.num_clusters >= 1, "num_clusters", self.num_clusters, "1 or more")

    def init(self, setup: Setup) -> State:
        check_num_clusters(self.num_clusters, setup)
        return one_model(setup)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        if ctx.round >= self.cluster_round and len(state.models) < self.num_clusters:
            state = yield from self._cluster(state, ctx.everyone)
        return (yield from federate(state, ctx, self.local, self.averaging))

    def _cluster(self, state: State, ctx: Context) -> Flow[State]:
        """Ask everyone for an update of the one model, and group their directions."""
        trained = yield from train(Rows(state.models, state.labels), ctx, self.local)
        if len(trained.clients) < self.num_clusters:
            return state
        directions = normalize(trained.update, dim=1)
        found = k_means(directions, self.num_clusters, ctx.clustering_seed)
        labels = state.labels.index_copy(0, trained.clients, found)
        return replace(state, models=state.models.repeat(self.num_clusters, 1), labels=labels)
