"""The control of a clustered method: random clusters of the sizes that it found.

If a method's clusters are no better than random ones, its gain, if any, comes from the number of
models and not from the choice of the clients in each cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from umbel.algorithms import IFCA, RandomClusters, Sharing
from umbel.algorithms.base import Algorithm
from umbel.algorithms.restarts import innermost, method_of
from umbel.client.work import Gradient, LocalTraining
from umbel.runs.experiment import Experiment
from umbel.runs.folder import RunFolder
from umbel.runs.sweep import CONTROL
from umbel.server.aggregation import Averaging

KEY, VALUE = CONTROL


def controls(folders: Iterable[RunFolder]) -> list[list[Experiment]]:
    """The controls of finished runs, those of each method together.

    A method has controls if, under some seed, it found more than one cluster and fewer than there
    are clients.
    """
    ordered = sorted(folders, key=lambda folder: folder.experiment.name)
    groups = [[*each] for _, each in groupby(ordered, key=lambda folder: folder.experiment.name)]
    return [[control(folder) for folder in group] for group in groups if _has_one(group)]


def control(folder: RunFolder) -> Experiment:
    """FedAvg in random clusters of the sizes that a finished run ended with.

    Local training, rounds, cohorts, seed and the parts of models that stay with clients are those
    of the run.
    """
    experiment = folder.runnable
    around, method = method_of(experiment.algorithm), innermost(experiment.algorithm)
    averaging = getattr(method, "averaging", None)
    sizes = _sizes(folder)
    algorithm: Algorithm[Any] = RandomClusters(
        num_clusters=len(sizes),
        sizes=sizes,
        local=_training(method) or LocalTraining(),
        averaging=averaging if isinstance(averaging, Averaging) else Averaging(),
    )
    if isinstance(around, Sharing):
        algorithm = replace(around, of=algorithm)
    return replace(
        experiment,
        algorithm=algorithm,
        name=f"{experiment.name},{KEY}={VALUE}",
        description=f"Random clusters of the sizes that {experiment.name} found",
        rounds=len(folder.records()),
    )


def _has_one(folders: Sequence[RunFolder]) -> bool:
    """Whether these runs, which differ in their seed, are of a method with clusters."""
    method = innermost(folders[0].runnable.algorithm)
    if isinstance(method, RandomClusters) or _training(method) is None:
        return False
    sizes = (_sizes(folder) for folder in folders)
    return any(1 < len(each) < sum(each) for each in sizes)


def _sizes(folder: RunFolder) -> tuple[int, ...]:
    """Clients of each cluster, the largest first."""
    counts = np.bincount([client.cluster for client in folder.clients()])
    return tuple(sorted((int(count) for count in counts if count), reverse=True))


def _training(method: Algorithm[Any]) -> LocalTraining | None:
    """The local training of a method; None if it is not in the form that umbel's methods use.

    If clients send a gradient for the server's step, it is one plain step on as many examples. It
    is also None if the server's step is not a mean over a cluster, so that the control's steps
    would have other lengths: with sums of gradients, and with IFCA's division by the number of all
    clients.
    """
    local, sent = getattr(method, "local", None), getattr(method, "gradient", None)
    gradients = getattr(method, "send", None) == "gradient"
    no_mean = gradients and (isinstance(method, IFCA) or getattr(method, "reduction", "") == "sum")
    if not isinstance(local, LocalTraining) or no_mean:
        return None
    if gradients and isinstance(sent, Gradient):
        return replace(local, steps=1, batch_size=sent.batch_size)
    return local
