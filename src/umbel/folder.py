"""A run on disk: everything needed to make it again, to go on with it, and to look at it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from umbel import checkpoint, config
from umbel.algorithms.base import State
from umbel.checks import UsageError, check
from umbel.client_rows import read_rows, write_rows
from umbel.evidence import EvidenceFolder
from umbel.experiment import Experiment, Run
from umbel.records import Record
from umbel.scores import ClientScores
from umbel.version import __version__

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "kmedoids", "safetensors")


@dataclass(frozen=True)
class MadeFor:
    """What the model of a cluster fits: the header of its file."""

    input_shape: tuple[int, ...]
    num_outputs: int
    num_classes: int | None  # None: regression
    label: int  # the cluster as the method's state calls it


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
            _write_text(folder.file("experiment.toml"), config.write(experiment))
        return folder

    @classmethod
    def begin(cls, runs_dir: Path, experiment: Experiment) -> RunFolder:
        """The folder of this very experiment, whether it was begun or not.

        Raises `UsageError` where a folder of that name holds another experiment.
        """
        folder = cls.of(runs_dir, experiment)
        if not folder.begun:
            return cls.create(folder.path, experiment)
        if folder.experiment != experiment:
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

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes here. Raises `UsageError` if another process does."""
        try:
            with FileLock(self.file(".lock"), timeout=0):
                yield
        except Timeout:
            raise UsageError(f"{self.path}: in use: another process is running in it") from None

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
        """Whether all rounds are done and the results written."""
        return self.file("clusters.csv").is_file()

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
        rounds = self.experiment.rounds if finished else len(records)
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

    def write(self, name: str, text: str) -> None:
        """Replace a file, which is whole whenever the process is killed."""
        _write_text(self.file(name), text)

    def append(self, record: Record) -> None:
        """Add a line, on disk when this returns."""
        with self.file("records.jsonl").open("a", encoding="utf-8") as lines:
            lines.write(record.to_json() + "\n")
            lines.flush()
            os.fsync(lines.fileno())

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
        """Write the model and the clients of every cluster.

        Of a mixture that is the component that stands for the cluster, of personal models the one
        that they were adapted from.
        """
        models, federation = self.file("models"), run.federation
        shape, classes = federation.input_shape, federation.num_classes
        outputs = federation.num_outputs_for(run.net.objective)
        shutil.rmtree(models, ignore_errors=True)
        models.mkdir()
        for cluster in range(int(scores.clusters.max()) + 1):
            client = int(np.flatnonzero(scores.clusters == cluster)[0])
            theta = scores.models.table[scores.models.index[client]]
            tensors = {n: t.contiguous() for n, t in run.net.layout.tensors(theta).items()}
            label = int(scores.labels[client])
            made_for = MadeFor(shape, outputs, classes, label)
            header = {"umbel": json.dumps(asdict(made_for))}
            save_file(tensors, models / f"cluster-{cluster}.safetensors", header)
        beside = self.file("clusters.csv.partial")
        write_rows(beside, federation, scores)
        checkpoint.replace_durably(beside, self.file("clusters.csv"))

    def clients(self) -> list[dict[str, str]]:
        """The rows of `clusters.csv` of a finished run, one a client.

        Raises `UsageError` if they are not what `finish` wrote.
        """
        try:
            return read_rows(self.file("clusters.csv"))
        except UsageError as error:
            raise UsageError(f"{error}; {self._put_right}") from None

    @property
    def _put_right(self) -> str:
        """How to get back results that are lost."""
        return f"remove clusters.csv, and `umbel resume {self.path}` writes it and the models again"

    def made_for(self, cluster: int) -> MadeFor:
        """What the model of a cluster fits, without reading the model itself."""
        with self._model_file(cluster) as opened:
            header = json.loads((opened.metadata() or {})["umbel"])
            return MadeFor(**{**header, "input_shape": tuple(header["input_shape"])})

    def model(self, cluster: int) -> dict[str, Tensor]:
        """The tensors of a cluster's model by name."""
        with self._model_file(cluster) as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118

    @contextmanager
    def _model_file(self, cluster: int) -> Iterator[Any]:
        """The open file. Raises `UsageError` if it is missing, or not what it should be."""
        file = self.file("models") / f"cluster-{cluster}.safetensors"
        if not file.is_file():
            last = max(int(row["cluster"]) for row in self.clients())
            check(0 <= cluster <= last, "cluster", cluster, f"a cluster of this run: 0 to {last}")
            raise UsageError(f"{file}: missing; {self._put_right}")
        try:
            with safe_open(file, framework="pt") as opened:
                yield opened
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{file}: not a readable model of this version: {error}") from None

    def note_session(self, began: datetime, seconds: float) -> None:
        """Add to the environment file what ran here, on what, and for how long."""
        session = {"began": began.isoformat(timespec="seconds"), "seconds": round(seconds, 3)}
        sessions = [*self.sessions(), session | environment()]
        self.write("environment.json", json.dumps(sessions, indent=2) + "\n")

    def sessions(self) -> list[dict[str, Any]]:
        """What ran here, on what, and for how long; nothing while the first session goes on."""
        file = self.file("environment.json")
        found: list[dict[str, Any]] = json.loads(file.read_text("utf-8")) if file.is_file() else []
        return found


def environment() -> dict[str, Any]:
    """Versions and machine."""
    return {
        "versions": {"umbel": __version__, "python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "host": platform.node(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def now() -> datetime:
    """The time, for the environment file."""
    return datetime.now(UTC)


def _write_text(file: Path, text: str) -> None:
    beside = file.with_name(file.name + ".partial")
    beside.write_text(text, encoding="utf-8")
    checkpoint.replace_durably(beside, file)
