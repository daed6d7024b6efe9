"""Cells of CSV files, of which no spreadsheet takes any part for a formula."""

from __future__ import annotations

import re

FORMULA = re.compile("^(?='*[-=+@\t\r\n])|(?<=[;\t\r\n])(?='*[-=+@])")
"""Where spreadsheets may read a formula: they may take semicolons and tabs for ends of cells."""

QUOTED = re.compile("^'(?='*[-=+@\t\r\n])|(?<=[;\t\r\n])'(?='*[-=+@])")
"""The quotes that `no_formula` puts there."""


def no_formula(text: str) -> str:
    """A text for a cell of CSV, of which no spreadsheet takes any part for a formula.

    A quote comes before each part that looks like one.
    """
    return FORMULA.sub("'", text)


def formula_again(cell: str) -> str:
    """The inverse of `no_formula`."""
    return QUOTED.sub("", cell)
