"""A run on disk: everything needed to make it again, to go on with it, and to look at it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from filelock import FileLock, Timeout

from umbel.algorithms.base import State
from umbel.checks import InUseError, UsageError, check, command
from umbel.experiment import toml_file
from umbel.experiment.differences import ELSEWHERE, RESUMED, WORKERS, check_same
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.places import NOTE, look_in, whole
from umbel.files.atomic import write_text
from umbel.files.reading import EXPERIMENT, check_no_link, read_bytes, read_text
from umbel.files.seals import BLANK, BROKEN, KEY, intact, json_text, json_value, sealed
from umbel.folder import checkpoint, encoding_file
from umbel.folder.checkpoint_parts import NO_PARTS, Parts
from umbel.folder.clients_file import Client, read_rows, with_facts, write_concepts, write_facts
from umbel.folder.evidence_folder import EvidenceFolder
from umbel.folder.how_to_continue import (
    NODES,
    ROLL,
    check_no_advice,
    held,
    holds_advice,
    in_python,
    putting_right,
)
from umbel.folder.identity import RUN, Origin, experiment_changes, identity
from umbel.folder.models_folder import ModelsFolder
from umbel.folder.records_file import RecordLines
from umbel.folder.sessions_file import SessionsFile
from umbel.run.records import Record
from umbel.run.rounds import Rounds
from umbel.run.scores import ClientScores
from umbel.run.start import NumRounds
from umbel.run.stopping import Budget, Stop

HEAD = f"# {KEY}: {BLANK}\n"
"""Beginning of the first line, above the settings."""


@dataclass(frozen=True)
class ExperimentFile:
    """The experiment file of one folder."""

    file: Path

    def write(self, experiment: ExperimentSettings) -> None:
        """Replace the file."""
        write_text(self.file, sealed(HEAD + toml_file.write(experiment, self.file.parent)))

    def check_is_ours(self) -> None:
        """Raise `UsageError` for a file that umbel did not write, before a run begins there."""
        if not self.is_ours:
            said = f"is not a file that umbel wrote, and is kept; {ELSEWHERE}"
            raise UsageError(f"{self.file}: {said}")

    @property
    def is_ours(self) -> bool:
        """True if there is no file, or one that umbel wrote, which begins with a seal."""
        return not self.file.is_file() or intact(read_bytes(self.file)) is not None

    def read(self, looking: bool) -> ExperimentSettings:
        """Read the experiment. Raises `UsageError` if it was changed after it was written."""
        whole = intact(read_bytes(self.file)) if self.file.is_file() else None
        # A changed setting is named, even if the seal was removed, too: the checkpoint has the old
        # ones.
        if not whole and (changes := self._changes()):
            raise UsageError(f"{self.file}: changed after it was written: {changes}; undo that")
        if whole is False:
            how = "undo that, or, if it is intended, remove the first line, the seal"
            how += f"; to change only rounds, undo that and run {self._with_rounds}"
            raise UsageError(f"{self.file}: changed after it was written; {how}")
        return toml_file.read(self.file, looking=looking)

    def importing(self, part: str) -> ExperimentSettings:
        """Read the experiment, and import only the modules that this part of it names."""
        # Read without imports first: the seal is checked before any code of the file's choice runs.
        looked_at = self.read(looking=True)
        look_in(self.file, [self.file.absolute().parent], {part: toml_file.plain(looked_at)[part]})
        try:
            return toml_file.importing(looked_at, part)
        except UsageError as error:
            raise UsageError(f"{self.file}: {error}") from None

    def check_rounds(self, said: int, done: int) -> None:
        """Raise `UsageError` if the file says another number of rounds than the run has done."""
        file = self.file.with_name("checkpoint.safetensors")
        if said != done and checkpoint.next_round(file) == done:
            how = f"write {done} again; for more rounds, then run {self._with_rounds}"
            raise UsageError(
                f"{self.file}: rounds: {said}, but the run finished after {done}; {how}"
            )

    @property
    def _with_rounds(self) -> str:
        run = self.file.parent
        if in_python(run):
            return f'umbel.resume("{run}", run, rounds=N)'
        return f"`{command('resume', run, '--rounds', 'N')}`"

    @property
    def text(self) -> str:
        """The settings as TOML, without the seal. Raises `UsageError` if the file is not text."""
        text = read_text(self.file)
        return text if intact(text.encode()) is None else text[len(HEAD) :]

    def _changes(self) -> str:
        """The settings that differ from those in the last checkpoint, if it has any."""
        file = self.file.with_name("checkpoint.safetensors")
        try:
            was = checkpoint.header(file)["made"] if file.is_file() else {}
            now = toml_file.plain(toml_file.read(self.file, looking=True))
            changes = list(experiment_changes(was, now)) if was else []
        except BROKEN:  # damage is reported when that file is read
            return ""
        return "; ".join(changes[:3])


FIRST_FILES = ("experiment.toml", "budget.json", "environment.json", "records.jsonl", NOTE, ".lock")
"""Files in the folder of a run before its first round."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run: its experiment, checkpoint, records, models and clusters as files."""

    path: Path  #: where it is
    #: the experiment to run there; None: the one that is there
    asked: ExperimentSettings | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(os.path.expanduser(self.path)))  # noqa: PTH111
        if self.asked is not None:
            object.__setattr__(self, "asked", whole(self.asked))

    @classmethod
    def create(
        cls, path: Path | str, experiment: ExperimentSettings, budget: Budget | None = None
    ) -> RunFolder:
        """Make a folder for a new run; `UsageError` if one exists, or if no file can hold it.

        Until its first round, a folder may be taken by another run, and this one is then refused.
        """
        folder = cls(Path(path), experiment)
        folder._check_not_begun()
        check_no_advice(folder.path)
        toml_file.writable(experiment)
        folder.path.mkdir(parents=True, exist_ok=True)
        with folder.locked():
            folder._check_not_begun()  # another process may have done a round meanwhile
            folder.settings.check_is_ours()
            for left in ("stopped.json", NODES, ROLL):
                folder.file(left).unlink(missing_ok=True)
            # The experiment comes last: it makes the folder a run, which then has its budget.
            folder.set_budget(budget or Budget())
            folder.settings.write(experiment)
        return folder

    @classmethod
    def begin(cls, runs_dir: Path, experiment: ExperimentSettings) -> RunFolder:
        """Return the folder of exactly this experiment, begun or not; descriptions may differ.

        Raises `UsageError` where a folder of that name holds another experiment.
        """
        folder = cls.of(runs_dir, experiment)
        if not folder.begun:
            try:
                return cls.create(folder.path, experiment)
            except InUseError:  # by another process, in its first round
                if not folder.settings.file.is_file():
                    with folder.locked(patiently=True):
                        pass  # it has written its experiment, or has ended
                    return cls.begin(runs_dir, experiment)
            except UsageError:
                if not folder.begun:  # else another process has done its first round meanwhile
                    raise
        check_same(folder.path, folder.experiment, experiment)
        return folder

    @classmethod
    def of(cls, runs_dir: Path, experiment: ExperimentSettings) -> RunFolder:
        """Return the folder of an experiment, by its name and seed."""
        return cls(runs_dir / f"{experiment.name}-seed{experiment.seed}", experiment)

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """Return the folder of a run that was begun. Raises `UsageError` if there is none."""
        folder = cls(Path(path))
        if not folder.begun:
            check_no_advice(folder.path)
        check(folder.file("experiment.toml").is_file(), "run", str(path), "the folder of a run")
        return folder

    def discard_if_not_begun(self) -> None:
        """Remove a run without any round; `InUseError` if another process uses the folder.

        Another experiment than the one asked for stays: another process is about to run it.
        """
        if self.begun or not self.path.is_dir() or not self.settings.is_ours:
            return
        with self.locked(), suppress(UsageError):
            if self.settings.file.is_file():
                self.checked()
            for name in () if self.begun else FIRST_FILES:
                self.file(name).unlink(missing_ok=True)
        with suppress(OSError):  # other programs' files stay
            self.path.rmdir()

    @contextmanager
    def locked(self, patiently: bool = False) -> Iterator[None]:
        """Inside, no other process writes here. If one does, wait for it or raise `InUseError`.

        Raises `UsageError` if a link would redirect files to another place.
        """
        # Before any file is touched: a folder from elsewhere may have links to other places.
        check_no_link(*map(self.file, (".lock", "evidence", "models", "checkpoint-parts")))
        try:
            with FileLock(self.file(".lock"), timeout=-1 if patiently else 0):
                yield
        except Timeout:
            inside = "another process is running in it, or a loop over its rounds is not closed"
            raise InUseError(f"{self.path}: in use: {inside}") from None

    def file(self, name: str) -> Path:
        """Return the path of a file of the run."""
        return self.path / name

    @property
    def evidence(self) -> EvidenceFolder:
        """The values on which the method's clusters are based, as they are on disk."""
        return EvidenceFolder(self.file("evidence"))

    @property
    def lines(self) -> RecordLines:
        """The records, as they are on disk."""
        return RecordLines(self.file("records.jsonl"))

    @property
    def settings(self) -> ExperimentFile:
        """The experiment, as it is on disk."""
        return ExperimentFile(self.file("experiment.toml"))

    @property
    def experiment(self) -> ExperimentSettings:
        """The experiment, to be looked at: no code outside umbel is imported.

        Raises `UsageError` where the file is not as it was written.
        """
        return self.settings.read(looking=True)

    @property
    def runnable(self) -> ExperimentSettings:
        """The experiment, to be run: modules that it names are imported, which runs their code."""
        return self.settings.read(looking=False)

    def checked(self, importing: bool = False) -> ExperimentSettings:
        """The experiment there. Raises `UsageError` if it is not the one that was asked for.

        To be asked inside the lock, or of a finished run. If rounds are done, their number may
        have been changed since, as `umbel.resume` does. With `importing`, it can be run.
        """
        if self.asked is not None and not self.settings.file.is_file():
            raise UsageError(f"{self.path}: was removed by another process before the first round")
        there = self.settings.read(looking=not importing)
        if self.asked is not None:
            taken = "another run has taken this folder meanwhile"
            free = RESUMED if self.begun else WORKERS
            check_same(self.path, there, self.asked, free, taken, ELSEWHERE)
        return there

    def _check_not_begun(self) -> None:
        if self.begun:
            raise UsageError(f"{self.path}: {held(self.path, self.finished)}, or {ELSEWHERE}")

    @property
    def toml(self) -> str:
        """The experiment as text."""
        return self.settings.text

    @property
    def begun(self) -> bool:
        """True if any round is done."""
        has_checkpoint = self.file("checkpoint.safetensors").is_file()
        return self.finished or has_checkpoint or self.lines.begun

    @property
    def finished(self) -> bool:
        """True if all rounds are done or the run was stopped, and its results are written."""
        return self.file("clusters.csv").is_file()

    @property
    def stop(self) -> Stop | None:
        """The round and the reason of an early end; None without one."""
        return json_value(self.file("stopped.json"), Stop.from_plain)

    @property
    def budget(self) -> Budget:
        """The goals and the time limit at which the run stops."""
        return json_value(self.file("budget.json"), Budget.from_plain) or Budget()

    @property
    def num_clients(self) -> int:
        """Number of clients M. Raises `UsageError` if no round is done."""
        if self.finished:
            return len(self.clients())
        return len(checkpoint.labels(self.file("checkpoint.safetensors")))

    def records(self) -> list[Record]:
        """The records of all whole rounds so far.

        Raises `UsageError` if the run is finished and not all of its rounds are there.
        """
        finished = self.finished  # asked first: another process may be writing the last record
        records = self.lines.read()
        stop = self.stop
        planned = self.experiment.most_rounds if stop is None else stop.rounds
        rounds = planned if finished else len(records)
        if stop is None:
            self.settings.check_rounds(rounds, len(records))
        if len(records) != rounds:
            there = f"{len(records)} whole records instead of {rounds}, but the run is finished"
            raise UsageError(f"{self.file('records.jsonl')}: damaged: {there}")
        return records

    def write(self, name: str, text: str) -> None:
        """Replace a file, which is whole whenever the process is killed."""
        write_text(self.file(name), text)

    def save(self, state: State, next_round: int, made: Origin, before: Parts = NO_PARTS) -> Parts:
        """Replace the checkpoint, as `checkpoint.save` does."""
        file = self.file("checkpoint.safetensors")
        return checkpoint.save(file, state, next_round, made, before)

    def finish(self, run: Rounds, scores: ClientScores) -> None:
        """Write models and files about clients: all but the file that marks the run as finished."""
        self.models.write(run, scores)
        said = {RUN: identity(self.path)}
        encoding_file.write(self.file(encoding_file.FILE), run.divided.encoding, said)
        write_facts(self.file("clients.csv"), run.divided, scores)
        write_concepts(self.file("concepts.csv"), run.divided)

    def stop_at(self, stop: Stop) -> None:
        """Note that the run ends after these rounds; their checkpoint must exist."""
        self.write("stopped.json", json_text(asdict(stop)))

    def replan(self, rounds: NumRounds, budget: Budget, turn: bool) -> None:
        """Set the total number of rounds and the budget; a finished run is opened again.

        `turn` says whether the number of models changed in the last round. If the process is killed
        meanwhile, the run can be resumed: it ends where it was stopped or by the new plan.
        """
        # The first step makes the run unfinished again: killed after it, the run ends as planned
        # before.
        if self.finished:
            self.file("clusters.csv").unlink()
            self.evidence.go_on(len(self.records()) - 1, turn)
        if rounds != self.experiment.rounds:
            self.settings.write(replace(self.experiment, rounds=rounds))
        self.set_budget(budget)
        self.file("stopped.json").unlink(missing_ok=True)

    def set_budget(self, budget: Budget) -> None:
        """Keep goals and time limit for this session and those that resume it."""
        if budget == Budget():
            self.file("budget.json").unlink(missing_ok=True)
        else:
            self.write("budget.json", json_text(budget.plain))

    def clients(self) -> list[Client]:
        """Read the rows of `clusters.csv` of a finished run, with the facts about each client.

        Raises `UsageError` if they are not what was written.
        """
        with putting_right(self.path):
            return with_facts(self.file("clients.csv"), read_rows(self.file("clusters.csv")))

    @property
    def models(self) -> ModelsFolder:
        """The models of clusters and clients, as they are on disk."""
        return ModelsFolder(self.file("models"))

    @property
    def sessions(self) -> SessionsFile:
        """The sessions of the run, as on disk: machine, versions and duration."""
        return SessionsFile(self.file("environment.json"))


def runs_in(folder: Path, depth: int = 1) -> list[RunFolder]:
    """The runs in a folder, by path, and to this depth in folders in it; there may be none.

    A folder of advice holds no run before what it advises is begun there.
    """
    files = (file for n in range(1, depth + 1) for file in folder.glob("*/" * n + EXPERIMENT))
    found = sorted((RunFolder(file.parent) for file in files), key=lambda each: each.path)
    return [each for each in found if each.begun or not holds_advice(each.path)]
