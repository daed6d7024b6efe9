"""Cells of CSV files, of which no spreadsheet takes any part for a formula."""

from __future__ import annotations

import re

FORMULA = re.compile("^(?='*[-=+@\t\r\n])|(?<=[;\t\r\n])(?='*[-=+@])")
"""Matches a place where spreadsheets may read a formula; semicolons and tabs may end cells."""

QUOTED = re.compile("^'(?='*[-=+@\t\r\n])|(?<=[;\t\r\n])'(?='*[-=+@])")
"""The quotes that `no_formula` puts there."""


def no_formula(text: str) -> str:
    """A text for a cell of CSV, of which no spreadsheet takes any part for a formula.

    A quote comes before each part that looks like one.
    """
    return FORMULA.sub("'", text)


def formula_again(cell: str) -> str:
    """Undo `no_formula`."""
    return QUOTED.sub("", cell)
