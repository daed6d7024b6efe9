"""Attributes: known facts about each client, such as its person or airport.

They are compared with the clusters that were found. No method sees them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from umbel.checks import UsageError, check, is_plain, shown
from umbel.data.given import in_order
from umbel.data.objects import is_missing
from umbel.files.reading import read_text
from umbel.summary import counted, few

Attributes: TypeAlias = "Mapping[str, tuple[str, ...]]"
"""Name of an attribute -> the value for each client."""

Given: TypeAlias = "Mapping[str, Sequence[object] | Mapping[str, object]]"
"""Attributes in the form that users give: the values in a list, or by client name."""

LONGEST_VALUE_CHARACTERS = 2**17
"""Largest number of characters of a value that Python reads from a CSV file."""

FILE, OWNER = "attributes.csv", "client"


def attributes_of(given: Given | None, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The attributes of the clients of these names; unknown values are empty.

    Raises `UsageError` unless there is a value for each client.
    """
    found = {}
    expected = 'a mapping of names to values; for a table write table.to_dict("list")'
    fine = given is None or isinstance(given, Mapping)
    check(fine, "attributes", type(given).__name__, expected)
    for name, values in ({} if given is None else given).items():
        fine = isinstance(name, str) and is_plain(name) and bool(name.strip()) and name != OWNER
        check(fine, "attributes", name, f"a name for an attribute other than {OWNER!r}")
        of_each = in_order(values, f"attributes: {name}", names)
        found[name] = tuple("" if is_missing(value) else str(value) for value in of_each)
        for value in found[name]:
            check(is_plain(value), f"attributes: {name}", value, "without control characters")
            expected = f"one of at most {LONGEST_VALUE_CHARACTERS:,}"
            length = f"a value of {len(value):,} characters"
            check(len(value) <= LONGEST_VALUE_CHARACTERS, f"attributes: {name}", length, expected)
    return found


def picked(attributes: Attributes, clients: Iterable[int]) -> dict[str, tuple[str, ...]]:
    """The attributes of these clients only, in this order."""
    chosen = list(clients)
    return {name: tuple(values[c] for c in chosen) for name, values in attributes.items()}


def attributes_text(names: Sequence[str], attributes: Attributes) -> str:
    """The text of `attributes.csv`, a line for each client; empty without attributes."""
    if not attributes:
        return ""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([OWNER, *attributes])
    writer.writerows(zip(names, *attributes.values(), strict=True))
    return text.getvalue()


def read_attributes(folder: Path, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The attributes of these clients in `attributes.csv` of a folder; none without that file."""
    file = folder / FILE
    if not file.exists():
        return {}
    try:
        head, *lines = list(csv.reader(io.StringIO(read_text(file)))) or [[]]
    except csv.Error as error:  # such as a value longer than LONGEST_VALUE_CHARACTERS
        raise UsageError(f"{file}: not a table of values between commas: {error}") from None
    fine = len(head) > 1 and head[0] == OWNER and len(set(head)) == len(head)
    check(fine, f"{file}: line 1", ",".join(head), f"of the form {OWNER},NAME with different names")
    rows = by_client(file, enumerate(lines, start=2), names, len(head), f"one for each of {head}")
    columns = zip(*rows, strict=True)
    return attributes_of(dict(zip(head[1:], columns, strict=True)), names)


def by_client(
    file: Path,
    lines: Iterable[tuple[int, list[str]]],
    names: Sequence[str],
    width: int,
    expected: str,
) -> list[list[str]]:
    """The values behind each client's name in numbered lines of a file, in clients' order.

    Empty lines do not count. Raises `UsageError` unless each client has one line of `width` values.
    """
    found: dict[str, list[str]] = {}
    known = set(names)
    for number, row in lines:
        if not any(row):
            continue
        where = f"{file}: line {number}"
        check(len(row) == width, where, counted(len(row), "value"), expected)
        if row[0] not in known:
            raise UsageError(f"{where}: {shown(row[0])} is not a client; known: {few(names)}")
        check(row[0] not in found, where, row[0], "named only once")
        found[row[0]] = row[1:]
    for name in names:
        check(name in found, str(file), name, "in the file, which needs a line for each client")
    return [found[name] for name in names]
