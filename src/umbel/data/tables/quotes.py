"""Quotation marks in CSV files: a value that begins with one must end with one."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from umbel.checks import UsageError

BLOCK = 1 << 20
"""Bytes of a file that are searched at once."""

LONGEST_VALUE_CHARACTERS = 2**31 - 1
"""Largest limit of characters per value that the module csv takes on every system."""


def check_quotes(file: Path, separator: str) -> None:
    """Raise `UsageError`, with the row, for a value whose first quotation mark is never closed.

    Arrow takes everything up to the next mark, or to the end of the file, for this one value. It
    takes blanks behind a closing mark for a part of the value, and so they are no mistake.
    """
    if not _has_quotes(file):
        return
    blanks = re.compile(f'"[ \t]+(?=[{re.escape(separator)}\r\n]|$)')
    read = 0  # lines with values, the header among them
    before = csv.field_size_limit(
        LONGEST_VALUE_CHARACTERS
    )  # Arrow reads longer values than csv does by default
    try:
        # Bytes that are no UTF-8 are refused elsewhere, in columns that are used.
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as opened:
            lines = (blanks.sub('"', line) for line in opened)
            for line in csv.reader(lines, delimiter=separator, strict=True):
                read += bool(line)
    except csv.Error:
        where = f"row {read}" if read else "the header"
        raise UsageError(
            f"{file}: {where} has a value that begins with a quotation mark and does not end with "
            'one; put such a value in quotation marks, and write each " within it twice'
        ) from None
    finally:
        csv.field_size_limit(before)


def _has_quotes(file: Path) -> bool:
    with file.open("rb") as opened:
        return any(b'"' in block for block in iter(lambda: opened.read(BLOCK), b""))
