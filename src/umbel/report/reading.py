"""What is known of a run, finished or not, for its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from umbel.checks import UsageError, check
from umbel.report.charts import Mark
from umbel.runs import checkpoint
from umbel.runs.budget import Stop
from umbel.runs.evidence import Snapshot
from umbel.runs.experiment import Experiment
from umbel.runs.folder import RunFolder
from umbel.runs.records import Record
from umbel.runs.scores import in_order_of_appearance

MOST_MARKS = 6
"""A method that splits again and again has only its first rounds of that marked."""


@dataclass(frozen=True)
class Client:
    """What a run came to for a client; None for what is not known."""

    name: str
    number: int
    cluster: int
    group: str = ""
    examples: int | None = None
    accuracy: float | None = None
    loss: float | None = None


@dataclass(frozen=True)
class Known:
    """All that a run's folder tells."""

    name: str  # of the folder
    experiment: Experiment
    toml: str
    records: Sequence[Record]
    clients: Sequence[Client]
    finished: bool
    sessions: Sequence[Mapping[str, Any]]  # what ran, on what, and for how long
    snapshots: Sequence[Snapshot]
    stop: Stop | None = None  # why no more rounds were done, where that was not the plan

    @classmethod
    def of(cls, folder: RunFolder) -> Known:
        """Read the folder. Raises `UsageError` where no round is done, or a file is damaged."""
        check(folder.begun, "run", str(folder.path), "a run of which a round is done")
        finished = folder.finished
        return cls(
            folder.path.resolve().name,
            folder.experiment,
            folder.file("experiment.toml").read_text(encoding="utf-8"),
            folder.records(),
            _clients(folder) if finished else _clients_so_far(folder),
            finished,
            folder.sessions(),
            folder.evidence.read(),
            folder.stop,
        )

    @property
    def last(self) -> Record:
        """The last round that was evaluated; the last one if none was."""
        scored = [record for record in self.records if record.loss is not None]
        return (scored or list(self.records))[-1]

    @property
    def has_groups(self) -> bool:
        """Whether the planted groups are known."""
        return any(record.ari is not None for record in self.records)

    @property
    def by_loss(self) -> bool:
        """Whether there is no accuracy, as in regression."""
        return all(record.accuracy is None for record in self.records)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The rounds in which clients were clustered, separated or split."""
        found = []
        for before, after in pairwise(self.records):
            old, new = before.num_models, after.num_models
            if old is not None and new is not None and old != new:
                found.append(Mark(after.round + 1, f"{old} → {new} models"))
        settled = self.records[-1].measures.get("last_change")
        if settled:
            found.append(Mark(settled + 1, "last change of clusters"))
        return tuple(found[:MOST_MARKS])

    @property
    def worst_first(self) -> list[Client]:
        """The clients by accuracy, or by loss where there is no accuracy; unknown ones last."""
        if self.by_loss:
            return sorted(self.clients, key=lambda c: -(-np.inf if c.loss is None else c.loss))
        return sorted(self.clients, key=lambda c: np.inf if c.accuracy is None else c.accuracy)


def made_with(session: Mapping[str, Any]) -> str:
    """When, on what machine and with what versions."""
    versions = ", ".join(f"{name} {version}" for name, version in session["versions"].items())
    machine = [session["host"], session["platform"], session["cuda"] or "no GPU"]
    machine.append(f"{session['threads']} of {session['processors']} processors")
    when = f"{session['began']}, {session['seconds']} s"
    return f"{when}; {', '.join(machine)}; {versions}"


def _clients(folder: RunFolder) -> list[Client]:
    return [
        Client(
            row["client"],
            number,
            int(row["cluster"]),
            row["group"],
            int(row["examples"]),
            float(row["accuracy"]) if row["accuracy"] else None,
            float(row["loss"]) if row["loss"] else None,
        )
        for number, row in enumerate(folder.clients())
    ]


def _clients_so_far(folder: RunFolder) -> list[Client]:
    """Of a run that is not finished only the clusters are known."""
    try:
        labels = checkpoint.labels(folder.file("checkpoint.safetensors")).numpy()
    except UsageError:
        return []
    clusters = in_order_of_appearance(labels)
    return [Client(str(number), number, int(k)) for number, k in enumerate(clusters)]
