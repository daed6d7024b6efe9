"""The results of a finished run, read from its folder without the run's data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from umbel.algorithms.base import Algorithm, State
from umbel.algorithms.restarts import method_of
from umbel.checks import UsageError, check
from umbel.client.net import Net
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.made_in_python import OwnModule
from umbel.folder import checkpoint
from umbel.folder.clients_file import Client, concepts_in, number_of, with_means
from umbel.folder.how_to_continue import names_on_the_roll
from umbel.folder.models_folder import MadeFor
from umbel.folder.run_folder import RunFolder
from umbel.notebooks import cut
from umbel.run.drift import Drift, drift_of
from umbel.run.metrics import names_of
from umbel.run.records import MEGABYTE, Record, last_evaluated, over_steps
from umbel.run.start import first_state, setup_of, unsaid
from umbel.server.numbering import in_order_of_appearance
from umbel.settings import argument
from umbel.summary import counted, few


@dataclass(frozen=True)
class SavedRun:
    """The results of a finished run, read from its folder: records, clusters and models.

    The run's data are not needed. `umbel.Result` adds newcomers and exports.
    """

    folder: RunFolder  #: where the run is
    given: Net | None = None  #: the net, if no file says how to build it

    def __repr__(self) -> str:
        try:
            what, *_, last = self.experiment, *self.records
        except (UsageError, OSError, ValueError):
            return f"{type(self).__name__}: {self.folder.path}, which can't be read"
        parts = repr(last).removeprefix("Record: ").split(", ")[1:]
        rounds = counted(last.round + 1, "round")
        name = f"{what.name}, seed {what.seed}"
        return f"{type(self).__name__}: {self.folder.path}: {name}, {rounds}; {', '.join(parts)}"

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

    @cached_property
    def experiment(self) -> ExperimentSettings:
        """The experiment; code outside umbel is not imported."""
        return self.folder.experiment

    @cached_property
    def runnable(self) -> ExperimentSettings:
        """The experiment; modules that it names are imported."""
        return self.folder.runnable

    @cached_property
    def algorithm(self) -> Algorithm[Any]:
        """The method; only the module that it may name is imported."""
        return self.folder.settings.importing("algorithm").algorithm

    @cached_property
    def finished(self) -> bool:
        """True if the run is finished; always true for a result of `load`."""
        return self.folder.finished

    @cached_property
    def records(self) -> list[Record]:
        """One record a round."""
        _ = self.finished  # asked first: another process may be writing the last record
        return self.folder.records()

    @property
    def last(self) -> Record:
        """The record of the last round."""
        return self.records[-1]

    @cached_property
    def clients(self) -> list[Client]:
        """The results for each client; before the run is finished, only its cluster.

        With time, accuracy and loss are means over the ends of steps.
        """
        if not self.finished:
            return clients_so_far(self.folder)
        return with_means(self.folder.clients(), self.records)

    @property
    def clusters(self) -> dict[str, int]:
        """The cluster of each client, by name."""
        return {client.name: client.cluster for client in self.clients}

    @property
    def last_evaluated(self) -> Record:
        """The record of the last round that was evaluated; of the last one if none was.

        With time, measures of quality are means over the ends of steps.
        """
        return self._over_steps(last_evaluated(self.records))

    def _over_steps(self, last: Record) -> Record:
        return over_steps(self.records, last, names_of(self.experiment))

    @property
    def so_far(self) -> Record:
        """The record to judge by: the last one, or that of an unfinished run's last evaluation."""
        return self._over_steps(self.last) if self.finished else self.last_evaluated

    @cached_property
    def drift(self) -> Drift:
        """How clusters changed from step to step, and followed the planted concepts if known."""
        return drift_of(self.records, concepts_in(self.folder.file("concepts.csv")))

    @cached_property
    def has_groups(self) -> bool:
        """True if planted groups are known, against which clusters are scored."""
        return any(record.ari is not None for record in self.records)

    @cached_property
    def by_loss(self) -> bool:
        """True if records have no accuracy, as in regression."""
        return all(record.judged("accuracy") is None for record in self.records)

    @cached_property
    def validated(self) -> bool:
        """True if rounds are judged on validation examples."""
        return any(record.validation_loss is not None for record in self.records)

    @property
    def megabytes_down(self) -> float | None:
        """Traffic to each client, in megabytes, over all rounds; None: not known so far."""
        return self._per_client(sum(r.bytes_down for r in self.records), MEGABYTE)

    @property
    def megabytes_up(self) -> float | None:
        """Traffic from each client, in megabytes, over all rounds; None: not known so far."""
        return self._per_client(sum(r.bytes_up for r in self.records), MEGABYTE)

    def evaluations_per_client(self, of: Literal["gradient", "loss"]) -> float | None:
        """Mean number of gradients, or losses alone, of examples per client; None: not known."""
        counts = [getattr(record, f"{of}_evaluations") for record in self.records]
        return None if None in counts else self._per_client(sum(counts))

    def _per_client(self, total: float, unit: float = 1) -> float | None:
        """None before the first checkpoint, which tells how many clients there are."""
        sized = self.finished or self.folder.file("checkpoint.safetensors").is_file()
        return total / (len(self.clients) or self.folder.num_clients) / unit if sized else None

    @property
    def seconds(self) -> float:
        """Duration of all rounds, without evaluation."""
        return sum(record.seconds for record in self.records)

    @cached_property
    def made_for(self) -> tuple[MadeFor, ...]:
        """The form of examples that the clusters' models fit."""
        return tuple(self._made_for(cluster) for cluster in range(self.num_clusters))

    @cached_property
    def withheld(self) -> dict[int, str]:
        """The clusters whose models are not released, by `limits.min_release` -> the reason."""
        # Without a limit no file is read.
        found = self.made_for if self.experiment.limits.min_release > 1 else ()
        return {cluster: made.withheld for cluster, made in enumerate(found) if made.withheld}

    @property
    def num_clusters(self) -> int:
        """Number of clusters."""
        return max(self.clusters.values()) + 1

    @cached_property
    def net(self) -> Net:
        """The network of all clusters, as functions of a flat vector.

        Raises `UsageError` if no file says how to build the module and `load` was not given the
        net.
        """
        if self.given is not None:
            return self.given
        experiment = self.folder.settings.importing("model")
        if isinstance(recipe := experiment.model, OwnModule):
            try:
                return recipe.net()
            except UsageError as error:
                path = self.folder.path
                how = f'give the net again, by umbel.load("{path}", net), or --net of umbel export'
                raise UsageError(f"{path}: {error}: {how}") from None
        return experiment.net_of(self.made_for[0])

    @cached_property
    def state(self) -> State:
        """The method's state after the last round. Raises `UsageError` if it is damaged."""
        _ = self.made_for  # whose files say of which run they are
        experiment, groups = self.experiment, [client.group for client in self.clients]
        method, net = self.algorithm, self.net
        concepts = concepts_in(self.folder.file("concepts.csv"))
        # Only its form is needed: the checkpoint has the values.
        with unsaid():
            setup = setup_of(
                net,
                experiment.most_rounds,
                experiment.participation,
                experiment.seed,
                tuple(client.name for client in self.clients),
                None if "" in groups else np.unique(groups, return_inverse=True)[1],
                None if concepts is None else concepts[[each.number for each in self.clients]],
            )
            template = first_state(method, net, setup)
        state: State = checkpoint.load(self.folder.file("checkpoint.safetensors"), template)[0]
        return state

    @property
    def profile(self) -> Tensor:
        """The vectors (M, D) that the method clusters by. Raises `UsageError` if it keeps none."""
        profile: Tensor | None = self.algorithm.profile(self.state)
        kind = type(method_of(self.algorithm)).__name__
        check(profile is not None, "run", kind, "a method that keeps such vectors, as CFL-GP does")
        assert profile is not None
        return profile

    def model(self, cluster: int) -> nn.Module:
        """Build the module of this cluster, in evaluation mode.

        Raises `UsageError` for an unknown cluster, and for one that is not released.
        """
        cluster = argument("cluster", cluster, int)
        self._released(cluster)
        return self.net.module(self.folder.models.theta(cluster, self.net))

    def model_for(self, client: str | int) -> nn.Module:
        """Build the module that this client is served, in evaluation mode.

        `client` is a name, or the client's number from 0 if no name is a number. The module is the
        model of the client's cluster or, depending on the method, its personal model, its mixture
        of several models, or a model whose adapters mix experts. Raises `UsageError` for an unknown
        client, and for one whose cluster's model is not released.
        """
        one = self.clients[number_of(client, [each.name for each in self.clients])]
        used = self._released(one.cluster).clients_use
        if used == "cluster":
            return self.model(one.cluster)
        net = self.net
        self.folder.models.check_frozen(net)
        return self.folder.models.module(net, one.number, used)

    def _made_for(self, cluster: int) -> MadeFor:
        self._check_cluster(cluster)
        return self.folder.models.made_for(cluster)

    def _released(self, cluster: int) -> MadeFor:
        """What the model of this cluster fits. Raises `UsageError` if it is not released."""
        made = self._made_for(cluster)
        if made.withheld:
            raise UsageError(f"cluster {cluster}: its model is not released: {made.withheld}")
        return made

    def _check_cluster(self, cluster: int) -> None:
        """Raise `UsageError` unless this is a cluster; lost files are reported elsewhere."""
        if not self.folder.models.file(cluster).is_file():
            last = self.num_clusters - 1
            check(0 <= cluster <= last, "cluster", cluster, f"a cluster of this run: 0 to {last}")


def clients_so_far(folder: RunFolder) -> list[Client]:
    """The clusters after the last checkpoint; names are known then only for runs over Flower."""
    expected = "the folder of a run: give its whole path if you change the current directory"
    check(folder.path.is_dir(), "run", str(folder.path), expected)
    try:
        labels = checkpoint.labels(folder.file("checkpoint.safetensors")).numpy()
    except UsageError:
        return []
    clusters = in_order_of_appearance(labels).tolist()
    roll = names_on_the_roll(folder.path)
    names = roll if len(roll) == len(clusters) else [*map(str, range(len(clusters)))]
    pairs = zip(names, clusters, strict=True)
    return [Client(name, number, cluster) for number, (name, cluster) in enumerate(pairs)]
