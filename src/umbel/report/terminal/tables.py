"""Terminal tables without a frame, in which text is never interpreted as markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Column, Table
from rich.text import Text

from umbel.checks import printable

ROOM, GAP = 64, 3
"""Characters for columns beside the names of methods in a table of 80, and before each column."""

Columns: TypeAlias = Sequence[tuple[str, Sequence[str]]]
"""Heads, and the cells below each."""


def frameless(*heads: str, caption: str | None = None) -> Table:
    """A table without a frame, with its caption below on the left."""
    return Table(
        *folded(heads),
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        caption=caption,
        caption_justify="left",
    )


def folded(heads: Iterable[str]) -> list[Column]:
    """Columns in which long names are folded; by default they are cut, and may look the same."""
    return [Column(head, overflow="fold") for head in heads]


def fitting(columns: Columns, room: int = ROOM) -> Sequence[Columns]:
    """The columns, in order, of several tables that have so many characters for them."""
    parts: list[list[tuple[str, Sequence[str]]]] = []
    left = 0
    for head, cells in columns:
        width = GAP + max(map(cell_len, (head, *cells)))
        if not parts or width > left:
            parts.append([])
            left = room
        parts[-1].append((head, cells))
        left -= width
    return parts


def add_columns(table: Table, columns: Columns) -> None:
    """Add the heads of columns that are not to be narrowed, with numbers on the right."""
    for head, _ in columns:
        table.add_column(Text(printable(head)), justify="right", no_wrap=True)


def row(table: Table, *cells: str) -> None:
    """Add a row without interpretation of markup or control characters."""
    table.add_row(*(Text(printable(cell)) for cell in cells))
