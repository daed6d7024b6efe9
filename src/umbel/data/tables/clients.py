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

LEAST_ROWS = 10
"""Different rows of a client that no other one has by chance."""


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


def warn_of_copies(rows: TableRows, clients: Clients, column: str | None) -> None:
    """Warn of clients with the same rows, and of one that has the rows of all others.

    `column` is that of the clients.
    """
    import pandas as pd

    values = pd.DataFrame({name: each for name, each in rows.columns.items() if name != column})
    hashes = np.asarray(pd.util.hash_pandas_object(values, index=False))
    shards = [np.sort(hashes[mine]) for mine in clients.rows]
    same: dict[bytes, list[str]] = {}
    for name, shard in zip(clients.names, shards, strict=True):
        if len(np.unique(shard)) >= LEAST_ROWS:  # a few may be the same by chance
            same.setdefault(shard.tobytes(), []).append(name)
    for names in same.values():
        if len(names) > 1:
            logger.warning("%s: clients with the same rows: %s", rows.files[0], listed(names))
    place = int(np.argmax([len(shard) for shard in shards]))
    rest = np.sort(
        np.concatenate([np.zeros(0, hashes.dtype), *shards[:place], *shards[place + 1 :]])
    )
    if len(shards) > 2 and len(rest) >= LEAST_ROWS and np.array_equal(shards[place], rest):
        said = "%s: client %s has the rows of all others together: remove its rows"
        logger.warning(said, rows.files[0], clients.names[place])


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
