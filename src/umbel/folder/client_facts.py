"""The file `clients.csv` of a finished run: facts about its clients other than results.

The facts are each client's number of test examples, and its attributes if the federation has any.
Runs of earlier versions have no such file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.files.spreadsheet_cells import formula_again, no_formula
from umbel.folder.clients_file import Client
from umbel.folder.sealed_files import read_sealed, write_sealed
from umbel.run.scores import ClientScores

COLUMNS = ("client", "test_examples")
"""Before the attributes, a column each."""


@dataclass(frozen=True)
class Facts:
    """What is known of a client."""

    test_examples: int
    attributes: Mapping[str, str] = field(default_factory=dict)


def write_facts(file: Path, federation: Federation, scores: ClientScores) -> None:
    """A row for each client of the federation; their seal is in a file of its own."""
    attributes = federation.attributes
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*COLUMNS, *map(no_formula, attributes)])
    for client, name in enumerate(federation.names):
        values = [no_formula(values[client]) for values in attributes.values()]
        writer.writerow([no_formula(name), scores.num_examples[client], *values])
    write_sealed(file, text.getvalue().encode())


def with_facts(file: Path, clients: Sequence[Client]) -> list[Client]:
    """The same clients with the facts in the file; unchanged if there is no file.

    Raises `UsageError` if it is not what `write_facts` writes of these clients.
    """
    if not file.is_file():
        return list(clients)
    raw = read_sealed(file)
    try:
        facts = _read(raw)
        return [replace(client, **vars(facts[client.name])) for client in clients]
    except (ValueError, TypeError, KeyError, csv.Error):
        what = f"damaged: not a row {','.join(COLUMNS)} for each client of clusters.csv"
        raise UsageError(f"{file}: {what}") from None


def _read(raw: bytes) -> dict[str, Facts]:
    """The facts by client. Raises `ValueError` for other columns."""
    head, *rows = csv.reader(io.StringIO(raw.decode(), newline=""))
    if tuple(head[: len(COLUMNS)]) != COLUMNS:
        raise ValueError("other columns")
    names = [formula_again(name) for name in head[len(COLUMNS) :]]
    facts = {}
    for client, count, *values in rows:
        attributes = dict(zip(names, map(formula_again, values), strict=True))
        facts[formula_again(client)] = Facts(int(count), attributes)
    return facts
