"""The clients of a table, their rows and their attributes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError
from umbel.data.tables.kinds import ColumnWords, column_of
from umbel.data.tables.missing import read_as_missing, with_words
from umbel.data.tables.parts import Places
from umbel.data.tables.reading import TableRows
from umbel.data.tables.wording import listed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Clients:
    """The clients of a table in the order of their names, with the rows of each client."""

    names: tuple[str, ...]
    rows: tuple[Places, ...]

    def pick(self, places: Sequence[int]) -> Clients:
        """The clients at these positions."""
        return Clients(
            tuple(self.names[place] for place in places), tuple(self.rows[p] for p in places)
        )

    def owners(self, count: int) -> NDArray[np.int64]:
        """(count,) the position of each row's client; -1 for rows of none."""
        found = np.full(count, -1)
        for place, mine in enumerate(self.rows):
            found[mine] = place
        return found


def clients_of(rows: TableRows, column: str | None, usable: NDArray[np.bool_]) -> Clients:
    """The clients named by a column, or by the files, with their usable rows.

    Raises `UsageError` if a row names no client.
    """
    if column is None:
        codes, names = rows.owners, tuple(file.stem for file in rows.files)
    else:
        found = texts_of(rows, column)
        codes, names = found.codes, found.words
        blank = np.array([*(not name.strip() for name in names), True])  # the last: no name
        if blank[codes].any():
            fault = f"{rows.at(int(blank[codes].argmax()), column)}: names no client"
            raise UsageError(with_words(fault, rows, column, "a client's name"))
        warn_of_spellings(rows, "clients whose names", names)
    order = sorted(range(len(names)), key=names.__getitem__)
    kept = np.flatnonzero(usable)
    by_client = kept[np.argsort(codes[kept], kind="stable")]
    ends = np.cumsum(np.bincount(codes[kept], minlength=len(names)))
    shards = np.split(by_client, ends[:-1])
    return Clients(tuple(names[c] for c in order), tuple(shards[c] for c in order))


def warn_of_spellings(rows: TableRows, what: str, words: Sequence[str]) -> None:
    """Warn of words that differ only in capitals and blanks: they may mean one thing."""
    alike: dict[str, list[str]] = {}
    for word in words:
        alike.setdefault("".join(word.casefold().split()), []).append(word)
    twice = [word for group in alike.values() if len(group) > 1 for word in group]
    if twice:
        logger.warning(
            "%s: %s differ only in capitals or blanks are different ones: %s",
            *(rows.files[0], what, listed(twice)),
        )


def known_of(rows: TableRows, clients: Clients, columns: Sequence[str]) -> dict[str, list[str]]:
    """The one value that each client has in each of these columns.

    Raises `UsageError`, with the row, if a client has more than one value.
    """
    found: dict[str, list[str]] = {}
    for name in columns:
        column = texts_of(rows, name)
        for client, mine in zip(clients.names, clients.rows, strict=True):
            codes = column.codes[mine]
            if (codes != codes[0]).any():
                where = rows.at(int(mine[int((codes != codes[0]).argmax())]), name)
                fault = (
                    f"differs from an earlier value of client {client}; an attribute has one value"
                )
                raise UsageError(f"{where}: {fault}")
            found.setdefault(name, []).append(column.word(int(mine[0])) or "")
        if "" in found[name] and (said := read_as_missing(rows, name, "a value")):
            logger.warning("%s: attribute %r: %s", rows.files[0], name, said)
    return found


def texts_of(rows: TableRows, name: str) -> ColumnWords:
    """A column as texts, whatever its type."""
    column = column_of(rows, name, "category")
    assert isinstance(column, ColumnWords)
    return column
