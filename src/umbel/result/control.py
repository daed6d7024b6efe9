"""The control of a clustered method: random clusters of the sizes that it found.

If a method's clusters are no better than random ones, its gain, if any, comes from the number of
models and not from the choice of the clients in each cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import groupby
from typing import Any

import numpy as np

from umbel.algorithms import (
    IFCA,
    FedAvg,
    FedProx,
    LocalOnly,
    PerFedAvg,
    PFedMe,
    RandomClusters,
    Sharing,
)
from umbel.algorithms.base import Algorithm
from umbel.algorithms.restarts import innermost, method_of
from umbel.checks import check
from umbel.client.work import Gradient, LocalTraining
from umbel.experiment.experiment import LONGEST_NAME, ExperimentSettings
from umbel.experiment.sweep import OF_CONTROL
from umbel.folder.run_folder import RunFolder
from umbel.server.aggregation import Averaging
from umbel.summary import counted

log = logging.getLogger(__name__)

WITHOUT = (FedAvg, FedProx, LocalOnly, PerFedAvg, PFedMe, RandomClusters)
"""Methods without a control: one cluster, one for each client, or the control itself."""


def check_room(experiments: Iterable[ExperimentSettings]) -> None:
    """Raise `UsageError` if the name of an experiment's control would be too long.

    Experiments whose method never has a control may have any name.
    """
    most = LONGEST_NAME - len(OF_CONTROL)
    for each in experiments:
        method = _trainer(each.algorithm)
        if type(innermost(each.algorithm)) in WITHOUT or _why_none(method):
            continue
        expected = f"at most {most} bytes long, as --control adds an ending to it"
        check(len(each.name.encode()) <= most, "name", each.name, expected)


def controls(folders: Iterable[RunFolder]) -> list[list[ExperimentSettings]]:
    """The controls of finished runs, those of each method together.

    A method has controls if, under some seed, it found more than one cluster and fewer than there
    are clients. If none has, or if its local training can't be that of a control, a warning says
    so.
    """
    ordered = sorted(folders, key=lambda folder: folder.experiment.name)
    groups = [[*each] for _, each in groupby(ordered, key=lambda folder: folder.experiment.name)]
    return [[control(folder) for folder in group] for group in groups if _has_one(group)]


def control(folder: RunFolder) -> ExperimentSettings:
    """FedAvg in random clusters of the sizes that a finished run ended with.

    Local training, rounds, cohorts, seed and the parts of models that stay with clients are those
    of the run.
    """
    experiment = folder.runnable
    around, method = method_of(experiment.algorithm), _trainer(experiment.algorithm)
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
        name=experiment.name + OF_CONTROL,
        description=f"Random clusters of the sizes that {experiment.name} found",
        rounds=len(folder.records()),
    )


def _has_one(folders: Sequence[RunFolder]) -> bool:
    """Return True if these runs, which differ in their seed, are of a method with a control."""
    algorithm = folders[0].runnable.algorithm
    method = _trainer(algorithm)
    if type(innermost(algorithm)) in WITHOUT or isinstance(method, RandomClusters):
        return False
    alone = [_nothing_yet(folder) for folder in folders]
    why = alone[0] if all(alone) else _why_none(method)
    if why:
        log.warning("%s has no control: %s", folders[0].experiment.name, why)
    return not why


def _nothing_yet(folder: RunFolder) -> str:
    """Return why a run has no clusters to compare with random ones; "" if it has."""
    clusters, sizes = {client.cluster for client in folder.clients()}, _sizes(folder)
    if _as_drawn(folder):
        return "its clusters are still those that it began with"
    if len(sizes) == 1 < len(clusters):
        count = counted(len(clusters), "cluster")
        return f"one model serves its {count} so far, and random ones would have a model each"
    if len(sizes) == 1:
        return "all clients are in one cluster"
    return "each client is in a cluster of its own" if len(sizes) == sum(sizes) else ""


def _as_drawn(folder: RunFolder) -> bool:
    """Return True for a run of CFL-GP that has not sent a model to all clients yet."""
    return folder.records()[-1].measures.get("queries") == 0


def _why_none(method: Algorithm[Any]) -> str:
    """Return why a control can't use the local training of a method; "" if it can."""
    if _steps_by_no_mean(method):
        return "its steps are not means of gradients, as those of random clusters are"
    if _training(method) is None:
        return "it has no field that is a LocalTraining, or several and none named local"
    return ""


def _sizes(folder: RunFolder) -> tuple[int, ...]:
    """Clients of each cluster, the largest first; all of them while one model serves all.

    So it is, too, before a method has compared its clients.
    """
    clusters = [client.cluster for client in folder.clients()]
    alone = folder.records()[-1].num_models == 1 or _as_drawn(folder)
    counts = np.bincount(np.zeros_like(clusters) if alone else clusters)
    return tuple(sorted((int(count) for count in counts if count), reverse=True))


def _trainer(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """The method itself, or the one within it that has the local training."""
    method = innermost(algorithm)
    within: list[Algorithm[Any]] = _values(method, Algorithm)
    return method if _local(method) or len(within) != 1 else _trainer(within[0])


def _local(method: Algorithm[Any]) -> LocalTraining | None:
    """The local training in the field `local`, or in the only field that holds one."""
    found, named = _values(method, LocalTraining), getattr(method, "local", None)
    if isinstance(named, LocalTraining):
        return named
    return found[0] if len(found) == 1 else None


def _values(method: Algorithm[Any], kind: type) -> list[Any]:
    values = (getattr(method, field.name) for field in fields(method))
    return [value for value in values if isinstance(value, kind)]


def _steps_by_no_mean(method: Algorithm[Any]) -> bool:
    """Return True if the server's step is not a mean over a cluster, as the control's is.

    So it is with sums of gradients, and with IFCA's division by the number of all clients.
    """
    gradients = getattr(method, "send", None) == "gradient"
    return gradients and (isinstance(method, IFCA) or getattr(method, "reduction", "") == "sum")


def _training(method: Algorithm[Any]) -> LocalTraining | None:
    """The local training of a method; None if it is not known.

    If clients send a gradient for the server's step, it is one plain step on as many examples.
    """
    local, sent = _local(method), getattr(method, "gradient", None)
    if local and getattr(method, "send", None) == "gradient" and isinstance(sent, Gradient):
        return replace(local, steps=1, batch_size=sent.batch_size)
    return local
