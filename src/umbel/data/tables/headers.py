"""What to write if a CSV file was read with another separator, or another header, than it has."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from umbel.data.tables.wording import to_write

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

FIRST = 30
"""Lines with values that are looked at."""


def misread(file: Path, separator: str, others: Sequence[Path] = ()) -> str | None:
    """What to change so that the file's columns are found; None if all seems as it should be.

    `others` are the other files of its folder.

    The separator of a table divides most of its lines into the same number of values, more than
    one; its header is the first such line without an empty value.
    """
    found, lines = _divided(file, separator)
    if not lines:
        return None
    width = _width(lines)
    if width < 2:
        return None
    above = next((n for n, line in enumerate(lines) if len(line) == width and all(line)), 0)
    advice = []
    if found != separator:
        apart = f"values seem to be separated by {SEPARATORS.get(found, repr(found))}"
        usual = [other for other in others if _divided(other, separator)[0] == separator]
        if 2 * len(usual) > len(others):  # most are as the setting says
            right = SEPARATORS.get(separator, repr(separator))
            advice.append(f"{apart}, unlike those of {usual[0]}: save it with {right}")
        else:
            advice.append(f"{apart}: {to_write('separator', found)}")
    if above:
        names = ", ".join(map(repr, lines[above][:3]))
        what = "line" if above == 1 else f"{above} lines"
        advice.append(f"the names of columns seem to be {names}, ...: remove the {what} above them")
    return "; ".join(advice) or None


def header_of(file: Path, separator: str) -> list[str]:
    """The names of a CSV file's columns; none if it is not such a file."""
    lines = _lines(file, separator, strip=False)
    return lines[0] if lines else []


def _divided(file: Path, separator: str) -> tuple[str, list[list[str]]]:
    """The separator that a file seems to have, and its first lines by it."""
    tables = {each: _lines(file, each) for each in {separator: None, **SEPARATORS}}
    found = max(tables, key=lambda each: _regular(tables[each]))  # the given one, if all are alike
    return found, tables[found]


def _lines(file: Path, separator: str, strip: bool = True) -> list[list[str]]:
    """The values of the first lines that are not empty; none if the file is not such a CSV file."""
    try:
        with file.open(encoding="utf-8-sig", errors="replace", newline="") as opened:
            lines = (line for line in csv.reader(opened, delimiter=separator) if line)
            return [[v.strip() if strip else v for v in line] for line in islice(lines, FIRST)]
    except csv.Error:
        return []


def _width(lines: Sequence[Sequence[str]]) -> int:
    """The number of values that most lines have."""
    return Counter(map(len, lines)).most_common(1)[0][0]


def _regular(lines: Sequence[Sequence[str]]) -> tuple[float, bool]:
    """The share of lines of the usual width, if that is more than one value."""
    if not lines:
        return 0.0, False
    width = _width(lines)
    share = sum(len(line) == width for line in lines) / len(lines)
    return (share if width > 1 else 0.0), width > 1
