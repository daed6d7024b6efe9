"""The control of a clustered method: random clusters of the sizes that it found.

A method whose clusters do no better than these gains by the number of its models, or not at all,
but not by who is in which cluster.
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

    A method has them if it found more clusters than one and fewer than clients under any seed.
    """
    ordered = sorted(folders, key=lambda folder: folder.experiment.name)
    groups = [[*each] for _, each in groupby(ordered, key=lambda folder: folder.experiment.name)]
    return [[control(folder) for folder in group] for group in groups if _has_one(group)]


def control(folder: RunFolder) -> Experiment:
    """FedAvg in random clusters of the sizes that a finished run ended with.

    Local training, rounds, cohorts, seed and what stays with clients are those of the run.
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
    """How clients train, where the method says so as umbel's own do.

    Where they send a gradient that the server steps by, it is one plain step on as many examples.
    None, too, where that step is no mean over a cluster, so that a control's were of other lengths:
    with sums of gradients, and with those that IFCA divides by all clients.
    """
    local, sent = getattr(method, "local", None), getattr(method, "gradient", None)
    gradients = getattr(method, "send", None) == "gradient"
    no_mean = gradients and (isinstance(method, IFCA) or getattr(method, "reduction", "") == "sum")
    if not isinstance(local, LocalTraining) or no_mean:
        return None
    if gradients and isinstance(sent, Gradient):
        return replace(local, steps=1, batch_size=sent.batch_size)
    return local
