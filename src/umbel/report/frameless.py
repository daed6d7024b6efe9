"""Terminal tables without a frame, in which text is never interpreted as markup."""

from __future__ import annotations

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from rich.text import Text

from umbel.checks import printable


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


def row(table: Table, *cells: str) -> None:
    """Add a row without interpretation of markup or control characters."""
    table.add_row(*(Text(printable(cell)) for cell in cells))
