"""Terminal tables without a frame, in which text is never interpreted as markup."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from rich.text import Text

from umbel.checks import printable


def frameless(*heads: str, caption: str | None = None) -> Table:
    """A table without a frame, with its caption below on the left.

    Long names are folded: names of methods may differ only at their ends.
    """
    return Table(
        *(Column(head, overflow="fold") for head in heads),
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        caption=caption,
        caption_justify="left",
    )


def row(table: Table, *cells: str) -> None:
    """Add a row without interpretation of markup or control characters."""
    table.add_row(*(Text(printable(cell)) for cell in cells))
