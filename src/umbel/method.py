"""All that a method of one's own imports: `from umbel.method import Algorithm, State, train, ...`.

A method is a frozen dataclass that extends `Algorithm`: its fields are hyper-parameters, `init`
gives the first `State`, and `round` is a generator that asks clients by the verbs below and returns
the next state. `umbel.testing` has what every method owes its users.
"""

from __future__ import annotations

from umbel.algorithms.base import (
    Algorithm,
    Assigned,
    Known,
    Served,
    Setup,
    State,
    check_no_pull,
    check_num_clusters,
    federate,
    one_model,
)
from umbel.checks import UsageError, check
from umbel.client.batches import Batch, Plan, Shard
from umbel.client.layout import Entry, Layout
from umbel.client.net import Net
from umbel.client.work import (
    MEMORY,
    Batching,
    Footprint,
    Gradient,
    JointScore,
    LocalTraining,
    MeanLoss,
    MetaTraining,
    MoreauTraining,
    Promise,
    Work,
)
from umbel.flow import Flow, Replies, Request, Rows
from umbel.reduction import Reduction, Sums
from umbel.server.aggregation import Averaging, cluster_mean
from umbel.server.ask import (
    Context,
    Sample,
    best_gradients,
    features,
    gradients,
    joint_scores,
    losses,
    mixture_weights,
    own_loss,
    principal_vectors,
    train,
    train_best,
    train_best_summed,
    train_jointly,
    train_mixture,
    train_personal,
    train_summed,
    train_with_gradient,
)
from umbel.server.clusterers import (
    DBSCAN,
    HDBSCAN,
    Agglomerative,
    Clusterer,
    KMedoids,
    medoids,
)
from umbel.server.clustering import (
    agglomerate,
    cosine_similarity,
    distances,
    k_means,
    k_medoids,
    match_labels,
    spectral,
)

__all__ = [
    "DBSCAN",
    "HDBSCAN",
    "MEMORY",
    "Agglomerative",
    "Algorithm",
    "Assigned",
    "Averaging",
    "Batch",
    "Batching",
    "Clusterer",
    "Context",
    "Entry",
    "Flow",
    "Footprint",
    "Gradient",
    "JointScore",
    "KMedoids",
    "Known",
    "Layout",
    "LocalTraining",
    "MeanLoss",
    "MetaTraining",
    "MoreauTraining",
    "Net",
    "Plan",
    "Promise",
    "Reduction",
    "Replies",
    "Request",
    "Rows",
    "Sample",
    "Served",
    "Setup",
    "Shard",
    "State",
    "Sums",
    "UsageError",
    "Work",
    "agglomerate",
    "best_gradients",
    "check",
    "check_no_pull",
    "check_num_clusters",
    "cluster_mean",
    "cosine_similarity",
    "distances",
    "features",
    "federate",
    "gradients",
    "joint_scores",
    "k_means",
    "k_medoids",
    "losses",
    "match_labels",
    "medoids",
    "mixture_weights",
    "one_model",
    "own_loss",
    "principal_vectors",
    "spectral",
    "train",
    "train_best",
    "train_best_summed",
    "train_jointly",
    "train_mixture",
    "train_personal",
    "train_summed",
    "train_with_gradient",
]
