"""A run on disk: everything needed to make it again, to go on with it, and to look at it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from umbel.algorithms.base import State
from umbel.checks import InUseError, UsageError, check
from umbel.runs import checkpoint, config
from umbel.runs.budget import Budget, Stop
from umbel.runs.client_rows import read_rows, write_rows
from umbel.runs.environment import environment
from umbel.runs.evidence import EvidenceFolder
from umbel.runs.experiment import Experiment
from umbel.runs.models_folder import ModelsFolder
from umbel.runs.records import Record
from umbel.runs.run import Run
from umbel.runs.scores import ClientScores

FIRST_FILES = ("experiment.toml", "budget.json", "environment.json", "records.jsonl", ".lock")
"""What the folder of a run holds before its first round."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @classmethod
    def create(cls, path: Path | str, experiment: Experiment) -> RunFolder:
        """A folder for a new run. Raises `UsageError` if a round of another was done there."""
        folder = cls(Path(path))
        if folder.finished:
            raise UsageError(
                f"{path}: holds a finished run; see what it came to by `umbel show {path}`, "
                "or choose another --runs-dir or name"
            )
        if folder.begun:
            raise UsageError(
                f"{path}: holds a run already; go on with it by `umbel resume {path}`, "
                "or choose another --runs-dir or name"
            )
        folder.path.mkdir(parents=True, exist_ok=True)
        with folder.locked():
            for left in ("stopped.json", "budget.json"):
                folder.file(left).unlink(missing_ok=True)
            _write_text(folder.file("experiment.toml"), config.write(experiment))
        return folder

    @classmethod
    def begin(cls, runs_dir: Path, experiment: Experiment) -> RunFolder:
        """The folder of this very experiment, however described, whether it was begun or not.

        Raises `UsageError` where a folder of that name holds another experiment.
        """
        folder = cls.of(runs_dir, experiment)
        if not folder.begun:
            return cls.create(folder.path, experiment)
        if replace(folder.experiment, description=experiment.description) != experiment:
            raise UsageError(f"{folder.path}: holds another experiment; choose another --runs-dir")
        return folder

    @classmethod
    def of(cls, runs_dir: Path, experiment: Experiment) -> RunFolder:
        """Where an experiment is run, under its name and seed."""
        return cls(runs_dir / f"{experiment.name}-seed{experiment.seed}")

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """The folder of a run that was begun. Raises `UsageError` if there is none."""
        folder = cls(Path(path))
        check(folder.file("experiment.toml").is_file(), "run", str(path), "the folder of a run")
        return folder

    def discard_if_not_begun(self) -> None:
        """Remove what is there of a run that was refused before its first round."""
        if self.begun:
            return
        for name in FIRST_FILES:
            self.file(name).unlink(missing_ok=True)
        with suppress(OSError):  # somebody else's files stay
            self.path.rmdir()

    @contextmanager
    def locked(self, patiently: bool = False) -> Iterator[None]:
        """Nobody else writes here. Where another does, wait for it or raise `InUseError`."""
        try:
            with FileLock(self.file(".lock"), timeout=-1 if patiently else 0):
                yield
        except Timeout:
            inside = "another process is running in it, or a loop over its rounds is not closed"
            raise InUseError(f"{self.path}: in use: {inside}") from None

    def file(self, name: str) -> Path:
        """Where this file of the run is."""
        return self.path / name

    @property
    def evidence(self) -> EvidenceFolder:
        """What the method's clusters rested on."""
        return EvidenceFolder(self.file("evidence"))

    @property
    def experiment(self) -> Experiment:
        """What is run here."""
        return config.read(self.file("experiment.toml"))

    @property
    def begun(self) -> bool:
        """Whether any round is done."""
        has_checkpoint = self.file("checkpoint.safetensors").is_file()
        return self.finished or has_checkpoint or bool(self._whole_records())

    @property
    def finished(self) -> bool:
        """Whether all rounds are done, or it was stopped, and the results are written."""
        return self.file("clusters.csv").is_file()

    @property
    def stop(self) -> Stop | None:
        """Where and why the run ended before its last round, if it did."""
        table = self._json("stopped.json")
        return None if table is None else Stop(int(table["rounds"]), str(table["why"]))

    @property
    def budget(self) -> Budget:
        """When the run is to stop."""
        table = self._json("budget.json")
        return Budget() if table is None else Budget.from_plain(table)

    @property
    def num_clients(self) -> int:
        """M. Raises `UsageError` where no round is done."""
        if self.finished:
            return len(self.clients())
        return len(checkpoint.labels(self.file("checkpoint.safetensors")))

    def records(self) -> list[Record]:
        """The records of all whole rounds so far.

        Raises `UsageError` if the run is finished and not all of its rounds are there.
        """
        finished = self.finished  # asked first: another process may be writing the last record
        records = self._whole_records()
        stop = self.stop
        planned = self.experiment.rounds if stop is None else stop.rounds
        rounds = planned if finished else len(records)
        if len(records) != rounds:
            found = f"{len(records)} whole records instead of {rounds}, as the run is finished"
            raise UsageError(f"{self.file('records.jsonl')}: damaged: {found}")
        return records

    def _whole_records(self) -> list[Record]:
        """The records up to the first line that is not one."""
        try:
            text = self.file("records.jsonl").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        records: list[Record] = []
        for line in text.splitlines():
            try:
                record = Record.from_json(line)
            except (ValueError, TypeError, KeyError, AttributeError):
                break  # the line that was being written when the process was killed
            if record.round != len(records):
                break
            records.append(record)
        return records

    def _json(self, name: str) -> Any:
        """What a JSON file of the run says, None without it. Raises `UsageError` if damaged."""
        file = self.file(name)
        try:
            return json.loads(file.read_text("utf-8")) if file.is_file() else None
        except ValueError as error:
            raise UsageError(f"{file}: damaged: {error}") from None

    def write(self, name: str, text: str) -> None:
        """Replace a file, which is whole whenever the process is killed."""
        _write_text(self.file(name), text)

    def append(self, record: Record) -> None:
        """Add a line, on disk when this returns."""
        with self.file("records.jsonl").open("a", encoding="utf-8") as lines:
            lines.write(record.to_json() + "\n")
            lines.flush()
            os.fsync(lines.fileno())

    def replace_last(self, record: Record) -> None:
        """Replace the last line."""
        lines = [earlier.to_json() + "\n" for earlier in (*self.records()[:-1], record)]
        self.write("records.jsonl", "".join(lines))

    def save(self, state: State, next_round: int) -> None:
        """Replace the checkpoint."""
        checkpoint.save(self.file("checkpoint.safetensors"), state, next_round)

    def restore(self, template: State) -> tuple[State | None, int]:
        """The last checkpoint and the round to come; later records are cut off.

        Without a checkpoint the run starts over: (None, 0). Raises `UsageError` for a damaged one.
        """
        file = self.file("checkpoint.safetensors")
        state: State | None = None
        next_round = 0
        if file.is_file():
            state, next_round = checkpoint.load(file, template)
        records = self.records()
        if len(records) < next_round:
            raise UsageError(
                f"{self.file('records.jsonl')}: damaged: {len(records)} whole records, "
                f"and the checkpoint comes after {next_round}"
            )
        lines = "".join(record.to_json() + "\n" for record in records[:next_round])
        _write_text(self.file("records.jsonl"), lines)
        self.evidence.cut(next_round)
        return state, next_round

    def finish(self, run: Run, scores: ClientScores) -> None:
        """Write the models and the clients of every cluster; after this the run is finished."""
        self.models.write(run, scores)
        beside = self.file("clusters.csv.partial")
        write_rows(beside, run.federation, scores)
        checkpoint.replace_durably(beside, self.file("clusters.csv"))

    def stop_at(self, stop: Stop) -> None:
        """Note that the run ends after these rounds, whose checkpoint is there already."""
        self.write("stopped.json", json.dumps(asdict(stop)) + "\n")

    def replan(self, rounds: int, budget: Budget, turn: bool) -> None:
        """Have so many rounds altogether, within this budget; a finished run is open again.

        `turn` says whether the number of models changed in the last round. A kill on the way leaves
        a run that resuming finishes, where it was stopped or by the new plan.
        """
        if self.finished:
            self.file("clusters.csv").unlink()
            self.evidence.go_on(len(self.records()) - 1, turn)
        if rounds != self.experiment.rounds:
            text = config.write(replace(self.experiment, rounds=rounds))
            self.write("experiment.toml", text)
        self.set_budget(budget)
        self.file("stopped.json").unlink(missing_ok=True)

    def set_budget(self, budget: Budget) -> None:
        """Keep when to stop, for this session and those that resume it."""
        if budget == Budget():
            self.file("budget.json").unlink(missing_ok=True)
        else:
            self.write("budget.json", json.dumps(budget.plain) + "\n")

    def clients(self) -> list[dict[str, str]]:
        """The rows of `clusters.csv` of a finished run, one a client.

        Raises `UsageError` if they are not what `finish` wrote.
        """
        with self.putting_right():
            return read_rows(self.file("clusters.csv"))

    @contextmanager
    def putting_right(self) -> Iterator[None]:
        """Say how to get back results that are lost."""
        try:
            yield
        except UsageError as error:
            how = f"remove clusters.csv, and `umbel resume {self.path}` writes it and the models"
            raise UsageError(f"{error}; {how} again") from None

    @property
    def models(self) -> ModelsFolder:
        """The models of clusters and clients, as they are on disk."""
        return ModelsFolder(self.file("models"))

    def note_session(self, began: datetime, seconds: float) -> None:
        """Add to the environment file what ran here, on what, and for how long."""
        session = {"began": began.isoformat(timespec="seconds"), "seconds": round(seconds, 3)}
        sessions = [*self.sessions(), session | environment()]
        self.write("environment.json", json.dumps(sessions, indent=2) + "\n")

    def sessions(self) -> list[dict[str, Any]]:
        """What ran here, on what, and for how long; nothing while the first session goes on."""
        return self._json("environment.json") or []


def _write_text(file: Path, text: str) -> None:
    beside = file.with_name(file.name + ".partial")
    beside.write_text(text, encoding="utf-8")
    checkpoint.replace_durably(beside, file)
