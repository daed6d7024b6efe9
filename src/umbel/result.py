"""A finished run read back from its folder; its data are not needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from umbel import checkpoint, courses
from umbel.algorithms.base import State
from umbel.checks import UsageError, check
from umbel.cluster_plot import plot_rows
from umbel.data.federation import Federation
from umbel.experiment import Experiment, Run, first_state
from umbel.folder import MadeFor, RunFolder
from umbel.net import Net
from umbel.notebooks import cut
from umbel.objectives import CLASSIFICATION, REGRESSION
from umbel.records import Record
from umbel.summary import counted, few


@dataclass(frozen=True)
class Result:
    """A finished run, read back: its records, its clusters and their models."""

    folder: RunFolder

    def __repr__(self) -> str:
        try:
            what, *_, last = self.experiment, *self.records
        except (UsageError, OSError, ValueError):
            return f"Result: {self.folder.path}, which can't be read"
        parts = repr(last).removeprefix("Record: ").split(", ")[1:]
        rounds = counted(last.round + 1, "round")
        name = f"{what.name}, seed {what.seed}"
        return f"Result: {self.folder.path}: {name}, {rounds}; {', '.join(parts)}"

    def _repr_html_(self) -> str:
        members: dict[int, list[str]] = {}
        try:
            clusters = sorted(self.clusters.items(), key=lambda item: item[1])
        except UsageError:
            clusters = []
        for name, cluster in clusters:
            members.setdefault(cluster, []).append(name)
        rows = [(str(k), f"{len(who):,}", few(who)) for k, who in members.items()]
        return cut(("cluster", "clients", "members"), rows, repr(self), "clusters")._repr_html_()

    def plot(self) -> Any:
        """Accuracy, clusters and their agreement with the planted groups, round by round.

        A figure of matplotlib's, as of `umbel.plot`, which compares several runs.
        """
        return courses.plot(self.records)

    def plot_clusters(self) -> Any:
        """Who is in which cluster: a figure of matplotlib's, as of `umbel.plot_clusters`."""
        return plot_rows(self.folder.clients())

    @cached_property
    def experiment(self) -> Experiment:
        """What was run."""
        return self.folder.experiment

    @property
    def records(self) -> list[Record]:
        """One record a round."""
        return self.folder.records()

    @property
    def clusters(self) -> dict[str, int]:
        """The cluster of each client, by name."""
        return {row["client"]: int(row["cluster"]) for row in self.folder.clients()}

    @cached_property
    def made_for(self) -> tuple[MadeFor, ...]:
        """What the model of each cluster was made for."""
        count = max(self.clusters.values()) + 1
        return tuple(self.folder.made_for(cluster) for cluster in range(count))

    @cached_property
    def net(self) -> Net:
        """The network of all clusters, as functions of a flat vector."""
        recipe, made_for = self.experiment.model, self.made_for[0]
        objective = REGRESSION if made_for.num_classes is None else CLASSIFICATION
        shape, outputs = made_for.input_shape, made_for.num_outputs
        return Net(lambda: recipe.build(shape, outputs), objective)

    @cached_property
    def state(self) -> State:
        """The method's state after the last round. Raises `UsageError` if it is damaged."""
        experiment, clients = self.experiment, self.folder.clients()
        groups = [row["group"] for row in clients]
        template = first_state(
            experiment.algorithm,
            self.net,
            len(clients),
            experiment.rounds,
            experiment.participation,
            experiment.seed,
            None if "" in groups else np.unique(groups, return_inverse=True)[1],
        )
        return checkpoint.load(self.folder.file("checkpoint.safetensors"), template)[0]

    @property
    def profile(self) -> Tensor:
        """The vectors (M, D) that the method clusters by. Raises `UsageError` if it keeps none."""
        algorithm: Any = self.experiment.algorithm
        found: Tensor | None = algorithm.profile(self.state)
        kind = type(algorithm).__name__
        check(found is not None, "run", kind, "of a method that keeps such vectors, as CFL-GP does")
        assert found is not None
        return found

    def model(self, cluster: int) -> nn.Module:
        """The module of this cluster, in evaluation mode."""
        tensors = self.folder.model(cluster)
        entries = self.net.layout.weights + self.net.layout.rest
        return self.net.module(torch.cat([tensors[entry.name].flatten() for entry in entries]))

    def assign(self, newcomers: Federation) -> Assignment:
        """The cluster of each newcomer by the method's own rule.

        Clusters that no client of the run is in are left out. Raises `UsageError` where the
        newcomers' examples are not of the run's kind.
        """
        made_for, experiment = self.made_for[0], self.experiment
        # Newcomers are alike: what does not fit in the first, fits in none.
        first, shape = f"client {newcomers.names[0]}", newcomers.input_shape
        expected = f"{made_for.input_shape}, the run's"
        check(shape == made_for.input_shape, f"{first}: shape of an input", shape, expected)
        kinds = ("whole numbers, as class labels are", "floating-point numbers")
        found, wanted = (kinds[n is None] for n in (newcomers.num_classes, made_for.num_classes))
        check(found == wanted, f"{first}: y", found, f"{wanted}, as in the run")
        too_many = (newcomers.num_classes or 0) > (made_for.num_classes or 0)
        expected = f"at most {made_for.num_outputs}, as in the run"
        check(not too_many, "number of classes", newcomers.num_classes, expected)
        run: Run = Run(experiment.algorithm, newcomers, self.net, experiment.seed)
        assigned = run.assign(self.state)
        labels = torch.tensor([entry.label for entry in self.made_for])
        names = tuple(newcomers.names[client] for client in assigned.clients.tolist())
        return Assignment(names, assigned.scores[:, labels], assigned.meaning)


@dataclass(frozen=True)
class Assignment:
    """Newcomers, and how well they fit each cluster of a run: the lowest score wins."""

    clients: tuple[str, ...]
    scores: Tensor  # (N, K) a column a cluster, in the order of `clusters.csv`
    meaning: str  # what a score is

    def __repr__(self) -> str:
        found = [f"{name}: {cluster}" for name, cluster in self.clusters.items()]
        return f"Assignment: {counted(len(found), 'newcomer')}, their clusters: {few(found)}"

    def _repr_html_(self) -> str:
        best = self.scores.min(1).values.tolist()
        pairs = zip(self.clusters.items(), best, strict=True)
        rows = [(name, str(cluster), f"{score:.4g}") for (name, cluster), score in pairs]
        return cut(("client", "cluster", self.meaning), rows, repr(self), "clients")._repr_html_()

    @property
    def clusters(self) -> dict[str, int]:
        """The cluster of each client, by name."""
        return dict(zip(self.clients, self.scores.argmin(1).tolist(), strict=True))
