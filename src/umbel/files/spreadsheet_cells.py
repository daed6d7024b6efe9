"""CSV, the one way in which it is written and read: no spreadsheet takes a text for a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

FORMULA = re.compile("^(?='*[-=+@\t\r\n])|(?<=[;\t\r\n])(?='*[-=+@])")
"""Where spreadsheets may read a formula: they may take semicolons and tabs for ends of cells."""

QUOTED = re.compile("^'(?='*[-=+@\t\r\n])|(?<=[;\t\r\n])'(?='*[-=+@])")
"""The quotes that are put there when a text is written."""


def csv_text(rows: Iterable[Iterable[object]], end: str = "\r\n", texts: int | None = None) -> str:
    """Rows as CSV; a quote comes before each part of a text that looks like a formula.

    Only so many first cells of each row may be `texts`, by default all; the others are numbers.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end)
    for row in rows:
        cells = list(row)
        safe = [FORMULA.sub("'", c) if isinstance(c, str) else c for c in cells[:texts]]
        writer.writerow([*safe, *cells[len(safe) :]])
    return text.getvalue()


def csv_rows(text: str) -> list[list[str]]:
    """The cells of CSV that `csv_text` wrote."""
    rows = csv.reader(io.StringIO(text, newline=""))
    return [[QUOTED.sub("", cell) for cell in row] for row in rows]
