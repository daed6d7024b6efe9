"""Words that were read as missing values, in messages that say what to write if they are values."""

from __future__ import annotations

from umbel.checks import UsageError
from umbel.data.tables.kinds import kind_of
from umbel.data.tables.reading import TableRows
from umbel.data.tables.wording import to_write
from umbel.summary import counted, joined_by_and

MOST_WORDS = 5
"""Words that a message names."""


def _missing_words(rows: TableRows, name: str) -> str:
    """The words, except empty ones, that were read as missing in a column, with their number."""
    words = {word: n for word, n in rows.gaps.get(name, {}).items() if word.strip()}
    said = [f"{word!r} in {counted(n, 'row')}" for word, n in words.items()]
    return joined_by_and(said[:MOST_WORDS]) if said else ""


def read_as_missing(rows: TableRows, name: str, what: str) -> str:
    """A sentence on which words of a column were read as missing, and how to keep `what` they are.

    "" if there are only empty values, or if the file itself marks what is missing.
    """
    shown = _missing_words(rows, name)
    if not shown:
        return ""
    words = set(rows.gaps[name])
    elsewhere = {column: found for column, found in rows.gaps.items() if column != name}
    both = [column for column, found in elsewhere.items() if words & set(found) - {""}]
    numbers = [column for column in both if _holds_numbers(rows, column)]
    if numbers:
        how = f"write it otherwise in the file: in column {numbers[0]!r} it marks missing values"
    else:
        kept = sorted({word for found in elsewhere.values() for word in found} - words | {""})
        how = to_write("missing", kept)
    return f"{shown} is read as missing; if it is {what}, {how}"


def in_brackets(rows: TableRows, name: str) -> str:
    """A remark on the words of a column that were read as missing, "" if there are none."""
    words = _missing_words(rows, name)
    return f" ({words} is read as missing)" if words else ""


def with_words(fault: str, rows: TableRows, name: str, what: str) -> str:
    """A fault of a column with missing values, and the sentence if there is one."""
    said = read_as_missing(rows, name, what)
    return f"{fault}: {said}" if said else fault


def _holds_numbers(rows: TableRows, name: str) -> bool:
    try:
        return kind_of(rows, name) != "category"
    except UsageError:
        return False
