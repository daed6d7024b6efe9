"""The objects of users in Python: a named scenario, an experiment, its run, and its result."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

from umbel.algorithms.base import State
from umbel.checks import UsageError, check
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.engines.choice import EngineSettings
from umbel.experiment import toml_file
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.made_in_python import OwnModule
from umbel.experiment.toml_file import structured
from umbel.export.models import Exported, Format, export_model
from umbel.flow import Engine
from umbel.folder.execution import advance_states
from umbel.folder.how_to_continue import OVER_FLOWER, over_flower, way_on
from umbel.folder.resuming import num_done, reopened, replan, rounds_in
from umbel.folder.run_folder import RunFolder
from umbel.folder.saved_run import SavedRun
from umbel.help.synonyms import Answered
from umbel.newcomers.assign import assign, assign_unlabelled, federation_of
from umbel.newcomers.assignment import Assignment
from umbel.run.records import Record
from umbel.run.rounds import Rounds
from umbel.run.start import NumRounds
from umbel.run.stopping import Budget, Stop, Until
from umbel.settings import argument, hinting
from umbel.summary import counted

log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Run(Rounds, Answered):
    """One method on one federation under one seed; iterate over its rounds, or save it in a folder.

    >>> import torch
    >>> federation = umbel.scenario("rotated-digits", clients=8)
    >>> net = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
    >>> run = umbel.Run(umbel.FedAvg(), federation, net, participation=0.5)
    >>> [record.round for state, record in run.rounds(3)]
    [0, 1, 2]

    On one machine, runs with equal fields give equal records bit for bit, except for times. Values
    out of range, and settings that can't work together, raise `UsageError`.
    """

    @hinting
    def rounds(
        self,
        num_rounds: NumRounds,
        state: State | None = None,
        first: int = 0,
        *,
        folder: Path | str | None = None,
    ) -> Iterator[tuple[State, Record]]:
        """Do the rounds one by one: yields the state after each, and what was measured in it.

        To go on where a run stopped, give its last state and the number of the round to come. With
        a `folder`, every round is on disk before it is yielded, and those that are there already
        are not done again. Raises `QuorumError` when too few clients give a usable reply, and
        `UsageError` if state or folder are of another run, or if no folder can hold this one.
        """
        if folder is None:
            return super().rounds(num_rounds, state, first)
        if state is not None or first != 0:
            said = "state, first: leave them out with a folder, which says where to go on"
            raise UsageError(said)
        return rounds_in(self, folder, num_rounds, Budget(), checkpoint_every=1)

    @hinting
    def save(
        self,
        folder: Path | str,
        rounds: NumRounds,
        *,
        until: Until = (),
        max_time: float | str | None = None,
        checkpoint_every: int | None = None,
    ) -> Result:
        """Do all rounds in a folder, or those that are left there, and return the finished run.

        It stops earlier where a goal is reached, such as `until="accuracy=0.9"`, or the time is
        up, as after `max_time="10m"`. Killed, it goes on by the same call. Without
        `checkpoint_every`, it is what the folder says, or 1 in a new one. Raises `UsageError` where
        the folder holds another run, or can't hold a part of this one.
        """
        budget = Budget.of(until, max_time)
        for _ in rounds_in(self, folder, rounds, budget, checkpoint_every):
            pass
        return _result(RunFolder(Path(folder)), self)


@dataclass(frozen=True, eq=False)
class Experiment(ExperimentSettings):
    """All settings of a run, as in its TOML file: everything needed to make the run again.

    `read` reads one from a file, and `Experiment.open` builds its run. Raises `UsageError` for
    values out of range, and for settings that can't be combined.
    """

    @classmethod
    def of(cls, settings: ExperimentSettings) -> Experiment:
        """The experiment with these settings."""
        return cls(**{each.name: getattr(settings, each.name) for each in fields(settings)})

    def open(self, sources: Sources) -> Run:
        """Build the federation and the network, and return the run, before its first round.

        A folder that the run is saved in holds the experiment, so that `umbel resume` goes on.
        """
        return self.run_from(Run, sources)

    def run(self, federation: Federation, engine: EngineSettings | Engine) -> Run:
        """Make the run on this federation, whose clients work in this engine."""
        return self.run_of(Run, federation, engine)


@dataclass(frozen=True, repr=False)
class Result(SavedRun, Answered):
    """The results of a finished run, read from its folder: records, clusters and models.

    `load`, `Run.save`, `resume` and `finish` return one. The run's data are not needed.
    """

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment; code outside umbel is not imported."""
        return Experiment.of(self.folder.experiment)

    @cached_property
    def runnable(self) -> Experiment:
        """The experiment; modules that it names are imported."""
        return Experiment.of(self.folder.runnable)

    def export(
        self,
        to: Format,
        *,
        client: str | int | None = None,
        cluster: int | None = None,
        out: Path | str | None = None,
    ) -> Exported:
        """Write the model of a client or a cluster for other programs.

        `to` is "onnx", "torch" (a program of `torch.export`), "safetensors" or "peft" (a folder).
        The file goes into the folder `exported` of the run unless `out` names another place.
        Outputs of the exported and the original model are compared on random inputs, where the
        model accepts any. Raises `UsageError` if the export is not possible.
        """
        return export_model(self, to, client=client, cluster=cluster, out=out)

    def assign(
        self,
        newcomers: Federation | Path | str,
        *,
        labelled: bool = True,
        clients: Federation | None = None,
        data_dir: Path | str | None = None,
    ) -> Assignment:
        """Find the cluster of each newcomer by the method's own rule, or by its inputs alone.

        Newcomers may be files, as `umbel assign` takes; a table is encoded as the run's own was.
        Where newcomers have no labels (`labelled=False`, whatever their y says), their inputs are
        compared with those of the run's clients, which are described once, from the run's own data
        (found as `resume` finds them, in `data_dir` if need be) or from `clients`, the run's
        federation. Clusters that no client of the run is in are left out. Raises `UsageError` where
        the newcomers' examples are not of the run's kind, and where inputs do not tell the run's
        clusters apart.
        """
        new = federation_of(self, newcomers, labelled)
        return assign(self, new) if labelled else assign_unlabelled(self, new, clients, data_dir)


def read(file: Path | str, settings: Sequence[str] = (), *, looking: bool = False) -> Experiment:
    """Read the experiment of a TOML file, with settings such as `algorithm.num_clusters=6` applied.

    >>> umbel.read(umbel.find_experiment("flacc-digits"), ["algorithm.n_merge=1"]).algorithm.n_merge
    1

    With `extends = "other.toml"`, settings that a file lacks are read from that other file. Values
    such as "module:Name" are imported, which runs the code of that module; it is looked for in the
    file's folder, too. Paths of the file are relative to its folder, those of settings to the
    current one. With `looking`, nothing is imported, and the experiment can be shown but not run.
    Raises `UsageError`, which names the wrong keys and says what was expected.
    """
    return Experiment.of(toml_file.read(file, settings, looking=looking))


@hinting
def load(path: Path | str, net: Net | None = None) -> Result:
    """Read a finished run from its folder: `load("runs/...").model(cluster=0)` is ready to use.

    A run with your own module needs the `net` again, unless a function that can be imported made
    it. Raises `UsageError` if there is no finished run, or if the net is not that of the run.
    """
    folder = RunFolder.open(path)
    if not folder.finished:
        resume, finish = way_on(folder.path), way_on(folder.path, "finish")
        here = f"go on with it by {resume}, or end it here by {finish}"
        how = OVER_FLOWER if over_flower(folder.path) else here
        raise UsageError(f"{path}: not finished; {how}")
    if net is not None:
        check(isinstance(net, Net), "net", net, "a Net; write Net(lambda: MyModule(...))")
        model = folder.experiment.model
        expected = "needed: the run's experiment says how to build its module"
        check(isinstance(model, OwnModule), "net", type(model).__name__, expected)
        assert isinstance(model, OwnModule)
        model.check_fits(net)
    return Result(folder, net)


@hinting
def resume(
    folder: Path | str,
    run: Run | None = None,
    *,
    rounds: int | str | None = None,
    until: Until = (),
    max_time: float | str | None = None,
    data_dir: Path | str | None = None,
) -> Result:
    """Go on with a run that was stopped, to the same end as if it had not been stopped.

    >>> import torch
    >>> federation = umbel.scenario("rotated-digits", clients=4)
    >>> net = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
    >>> run = umbel.Run(umbel.FedAvg(), federation, net)
    >>> for state, record in run.rounds(4, folder="runs/mine"):
    ...     break  # or the power fails
    >>> len(umbel.resume("runs/mine", run).records)
    4

    A run that was made in Python needs the same `run` again: its data and module are compared by
    their digests. `rounds`, a number such as 80, an addition such as "+20" or "until-stopped", sets
    how many there are altogether, and with `until` and `max_time` opens a finished run again.
    Raises `UsageError` where the run is another one, saying what differs.
    """
    there = RunFolder.open(folder)
    held = there.experiment
    going = reopened(there, run, data_dir)
    replan(there, going, rounds, until, max_time)
    there = replace(there, asked=replace(held, rounds=there.experiment.rounds))
    for _ in advance_states(there, going):
        pass
    return _result(there, going)


@hinting
def finish(
    folder: Path | str, run: Run | None = None, *, data_dir: Path | str | None = None
) -> Result:
    """End a run with the rounds that are done: write its models and clusters, and return it.

    A run that was made in Python needs the same `run` again. Raises `UsageError` where that is
    another one, or no round is done.
    """
    there = RunFolder.open(folder)
    going = reopened(there, run, data_dir, verb="finish")
    if not there.finished:
        with there.locked():
            there.budget.check_for(going)
            done, recorded = num_done(there, going, there.experiment.rounds), len(there.records())
            if recorded and not done:
                every = there.experiment.checkpoint_every
                how = f"go on with it by {way_on(there.path)}"
                said = f"{counted(recorded, 'round')} done, and no checkpoint yet"
                raise UsageError(f"{folder}: {said}: one every {every}; {how}")
            check(done > 0, "run", str(folder), "a run with at least one finished round")
            if recorded > done:
                left = counted(recorded - done, "round")
                log.warning("%s: %s after the last checkpoint left out", folder, left)
            if done < there.experiment.most_rounds and there.stop is None:
                there.stop_at(Stop(done, "it was finished by hand"))
        for _ in advance_states(there, going):
            pass
    return _result(there, going)


def _result(folder: RunFolder, run: Rounds) -> Result:
    own = isinstance(folder.experiment.model, OwnModule)
    return load(folder.path, run.net if own else None)


def scenario(
    name: str, *, seed: int = 0, data_dir: Path | str | None = None, **settings: object
) -> Federation:
    """Build the federation of a named scenario, with some of its settings changed.

    >>> umbel.scenario("rotated-digits", clients=8, seed=1).num_clients
    8

    `umbel list scenarios` names them all. Image data sets come from `data_dir`, as in
    `Sources.default`. Raises `UsageError` for a name
    or a setting that is not known, for a seed below 0, and where the data can't be found.
    """
    seed = argument("seed", seed, int)
    check(seed >= 0, "seed", seed, "0 or more")
    recipe: Scenario = structured({"name": name, **settings}, Scenario)
    return recipe.built(seed, Sources.default(None if data_dir is None else Path(data_dir)))
