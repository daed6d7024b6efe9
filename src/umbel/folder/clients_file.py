"""The files about a finished run's clients: `clusters.csv`, results, and `clients.csv`, facts."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import zip_longest
from numbers import Integral
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, nearest
from umbel.data.federation import Federation
from umbel.files.atomic import write_bytes, write_text
from umbel.files.reading import read_bytes
from umbel.files.spreadsheet_cells import csv_rows, csv_text
from umbel.folder.identity import check_identity, identity
from umbel.run.digests import digest
from umbel.run.records import Record, ends_of_steps
from umbel.run.scores import ClientScores, Tuning

COLUMNS = ("client", "group", "cluster", "examples", "accuracy", "loss")

TUNED = ("tuned_epochs", "tuned_weight", "untuned_accuracy", "untuned_loss")
"""Further columns of a run with fine-tuning."""


@dataclass(frozen=True)
class Client:
    """The results of a run for one client; None for values that are not known."""

    name: str
    number: int
    cluster: int
    _: KW_ONLY
    group: str = ""  # planted
    examples: int | None = None  # for training
    accuracy: float | None = None
    loss: float | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)  # of the run, by name
    # epochs of fine-tuning that the client chose; None: the run has no fine-tuning
    tuned_epochs: int | None = None
    tuned_weight: float | None = None  # weight of the tuned model in the mean with the served model
    untuned_accuracy: float | None = None  # with the model that it is served
    untuned_loss: float | None = None
    test_examples: int | None = None  # that it was judged on
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)


def write_rows(file: Path, federation: Federation, scores: ClientScores) -> None:
    """Write a row for each client of the federation; their seal is in a file of its own."""
    head = [*COLUMNS, *(() if scores.tuning is None else TUNED), *scores.metrics]
    write_sealed(file, csv_text([head, *_rows(federation, scores)]).encode())


def read_rows(file: Path) -> list[Client]:
    """Read the clients, by number. Raises `UsageError` unless `write_rows` wrote the rows."""
    raw = read_sealed(file)
    try:
        head, *rows = csv_rows(raw.decode())
        lines = (dict(zip(head, row, strict=True)) for row in rows)
        # A client that was no member in the end has no cluster.
        clients = [_client(number, row) for number, row in enumerate(lines) if row["cluster"]]
    except (ValueError, TypeError, KeyError, csv.Error):
        clients = []
    if not clients:
        raise UsageError(f"{file}: damaged: not a row {','.join(COLUMNS)} for each client")
    return clients


def by_cluster(clients: Sequence[Client]) -> list[list[Client]]:
    """The clients of each cluster, the largest first."""
    clusters: dict[int, list[Client]] = {}
    for client in clients:
        clusters.setdefault(client.cluster, []).append(client)
    return sorted(clusters.values(), key=lambda each: (-len(each), each[0].cluster))


def number_of(client: str | int, names: list[str]) -> int:
    """The number of a client, by its name or by that number. Raises `UsageError` for no client."""
    name = str(client)
    if name in names:
        return names.index(name)
    # A number is taken only if no client bears a number as its name: it might be meant as one.
    whole = isinstance(client, Integral) and not isinstance(client, bool)
    if whole and not any(each.isdecimal() for each in names) and 0 <= int(client) < len(names):
        return int(client)
    few = "" if len(names) <= 10 else f"known: {', '.join(names[:3])} and others"
    raise UsageError(f"client: {name!r} is not known; {nearest(name, names, few)}")


def _rows(federation: Federation, scores: ClientScores) -> Iterator[list[object]]:
    for client, name in enumerate(federation.names):
        yield [
            name,
            "" if federation.groups is None else federation.groups[client],
            "" if scores.clusters[client] < 0 else scores.clusters[client],
            federation.train.sizes[client],
            *map(_cell, (scores.accuracy[client], scores.loss[client])),
            *_tuned(scores.tuning, client),
            *(_cell(values[client]) for values in scores.metrics.values()),
        ]


def _tuned(tuning: Tuning | None, client: int) -> list[object]:
    """Return a client's cells in the further columns."""
    if tuning is None:
        return []
    untuned = (tuning.accuracy[client], tuning.loss[client])
    return [int(tuning.epochs[client]), float(tuning.weight[client]), *map(_cell, untuned)]


def _cell(value: float) -> object:
    return "" if np.isnan(value) else float(value)


def _client(number: int, row: Mapping[str, str]) -> Client:
    """Raises `ValueError` or `TypeError` for wrong columns and for text in place of numbers."""
    if tuple(row)[: len(COLUMNS)] != COLUMNS:
        raise ValueError("other columns")
    if (cluster := int(row["cluster"])) < 0:
        raise ValueError("a cluster below 0")
    told = {*COLUMNS, *TUNED}
    epochs, *further = (row.get(name, "") for name in TUNED)
    weight, accuracy, loss = map(_number, further)
    return Client(
        row["client"],
        number,
        cluster,
        group=row["group"],
        examples=int(row["examples"]),
        accuracy=_finite(_number(row["accuracy"])),
        loss=_finite(_number(row["loss"])),
        tuned_epochs=int(epochs) if epochs else None,
        tuned_weight=weight,
        untuned_accuracy=accuracy,
        untuned_loss=loss,
        metrics={name: _number(row[name]) for name in row if name not in told},
    )


def _finite(value: float | None) -> float | None:
    """Refuse a value that is not finite: runs do not accept, and so never write, such results."""
    if value is not None and not np.isfinite(value):
        raise ValueError("not finite")
    return value


def _number(cell: str) -> float | None:
    return float(cell) if cell else None


FACT_COLUMNS = ("client", "test_examples")
"""Before the attributes, a column each."""


@dataclass(frozen=True)
class ClientFacts:
    """Facts about a client: not results of the run."""

    test_examples: int
    attributes: Mapping[str, str] = field(default_factory=dict)


def write_facts(file: Path, federation: Federation, scores: ClientScores) -> None:
    """Write a row for each client of the federation; their seal is in a file of its own."""
    attributes = federation.attributes
    head = [*FACT_COLUMNS, *attributes]
    columns = [federation.names, scores.num_examples, *attributes.values()]
    write_sealed(file, csv_text([head, *zip(*columns, strict=True)]).encode())


def write_concepts(file: Path, federation: Federation) -> None:
    """Write the concept of each client in each step, if there are any: a row for each client."""
    if federation.concepts is None:
        return
    head = ["client", *range(federation.concepts.shape[1])]
    rows = zip(federation.names, federation.concepts.tolist(), strict=True)
    write_sealed(file, csv_text([head, *([name, *row] for name, row in rows)]).encode())


def concepts_in(file: Path) -> NDArray[np.int64] | None:
    """Read concepts (M, T), if the file is there. Raises `UsageError` if it is damaged."""
    if not file.is_file():
        return None
    try:
        _, *rows = csv_rows(read_sealed(file).decode())
        return np.array([row[1:] for row in rows], dtype=np.int64)
    except (ValueError, csv.Error):
        raise UsageError(f"{file}: damaged: not a row of whole numbers for each client") from None


def with_means(clients: list[Client], records: Sequence[Record]) -> list[Client]:
    """Return clients with means over the ends of steps; as they are, without time."""
    ends = ends_of_steps(records)
    if not ends:
        return clients

    def means(columns: Iterable[Sequence[float | None] | None]) -> list[float | None]:
        # (M, S), None is NaN. The roll of a run over Flower grows, so that later steps have more.
        rows = zip_longest(*(column or () for column in columns))
        table = np.array([*rows], dtype=np.float64)
        known = ~np.isnan(table)
        sums, counts = np.where(known, table, 0).sum(axis=1), known.sum(axis=1)
        return [float(s / n) if n else None for s, n in zip(sums, counts, strict=True)]

    accuracies = means(record.client_accuracies for record in ends)
    losses = means(record.client_losses for record in ends)
    return [
        replace(client, accuracy=accuracies[client.number], loss=losses[client.number])
        for client in clients
    ]


def with_facts(file: Path, clients: Sequence[Client]) -> list[Client]:
    """Add the facts in a file to the clients, if there is such a file.

    Raises `UsageError` unless the file has a row of facts for each of them.
    """
    if not file.is_file():
        return list(clients)
    raw = read_sealed(file)
    try:
        facts = _read(raw)
        return [replace(client, **vars(facts[client.name])) for client in clients]
    except (ValueError, TypeError, KeyError, csv.Error):
        what = f"damaged: not a row {','.join(FACT_COLUMNS)} for each client of clusters.csv"
        raise UsageError(f"{file}: {what}") from None


def _read(raw: bytes) -> dict[str, ClientFacts]:
    """The facts by client. Raises `ValueError` for other columns."""
    head, *rows = csv_rows(raw.decode())
    if tuple(head[: len(FACT_COLUMNS)]) != FACT_COLUMNS:
        raise ValueError("other columns")
    names, facts = head[len(FACT_COLUMNS) :], {}
    for client, count, *values in rows:
        facts[client] = ClientFacts(int(count), dict(zip(names, values, strict=True)))
    return facts


def write_sealed(file: Path, raw: bytes) -> None:
    """Replace a file, and its seal in a file beside it: a digest, and the identity of the run."""
    # The seal first: killed between the two, the run is unfinished or repeats this, and no file
    # stands without its seal.
    write_text(_seal_of(file), f"{digest([raw])} {identity(file.parent)}".rstrip() + "\n")
    write_bytes(file, raw)


def read_sealed(file: Path) -> bytes:
    """Read a file. Raises `UsageError` if it has a seal that does not match.

    Also if the seal says that the file is of another run than the folder's.
    """
    raw, seal = read_bytes(file), _seal_of(file)
    if seal.is_file():
        whole, _, run = read_bytes(seal).removesuffix(b"\n").partition(b" ")
        if whole != digest([raw]).encode():
            raise UsageError(f"{file}: damaged: its seal in {seal.name} does not match")
        check_identity(file, run.decode(errors="replace"), file.parent)
    return raw


def _seal_of(file: Path) -> Path:
    return file.with_suffix(".seal")
