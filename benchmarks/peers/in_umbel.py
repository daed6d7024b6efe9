"""Rounds of umbel, from the same first models as the plain loop's."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils import parameters_to_vector

import umbel
from benchmarks.peers.modules import BUILD, started
from benchmarks.peers.tasks import (
    ALPHA,
    CLASSES,
    CLUSTERS,
    COMPONENTS,
    DELTA,
    EVALUATE_EVERY,
    PERSONAL_LR,
    PERSONAL_STEPS,
    PULL,
    ROUNDS,
    Task,
)
from benchmarks.peers.watch import Watch


def method_of(task: Task) -> Any:
    """The method with the settings that the plain loop has."""
    local = umbel.LocalTraining(lr=task.lr, epochs=task.epochs, batch_size=task.batch)
    if task.method == "ifca":
        return umbel.IFCA(CLUSTERS, local)
    if task.method == "fedem":
        return umbel.FedEM(COMPONENTS, local)
    if task.method == "pfedme":
        return umbel.PFedMe(PULL, PERSONAL_STEPS, PERSONAL_LR, local=local)
    if task.method == "fedavg":
        return umbel.FedAvg(local)
    if task.method == "per-fedavg":
        return umbel.PerFedAvg(ALPHA, "first-order", local=local)
    return umbel.PerFedAvg(ALPHA, "hessian-free", DELTA, local=local)


def run(task: Task, file: Path, watch: Watch) -> None:
    """All rounds; the last accuracy is the mean over clients."""
    logging.getLogger("umbel").setLevel(logging.ERROR)
    train, test = task.clients_of(file)
    federation = umbel.Federation.from_arrays(train, test, num_classes=CLASSES)
    del train, test
    made = umbel.Run(
        method_of(task),
        federation,
        umbel.Net(BUILD[task.network]),
        participation=task.cohort / task.clients,
        evaluate_every=EVALUATE_EVERY,
    )
    state: Any = made.start(ROUNDS)
    first = [started(task.network, k).parameters() for k in range(len(state.models))]
    state = replace(state, models=torch.stack([parameters_to_vector(p).detach() for p in first]))
    watch.start()
    for _, record in made.rounds(ROUNDS, state):
        watch.lap(record.accuracy)
