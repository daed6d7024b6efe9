"""A long table with search and sorting over all rows, which shows only some at a time."""

from __future__ import annotations

from collections.abc import Sequence

from umbel.report.html.markup import Markup, element, join, table
from umbel.report.html.page import data
from umbel.summary import counted

MOST_ROWS = 300
"""Number of clients that a table shows at once; others are found by searching and sorting."""


def listing(name: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """The table, with a name that is unique on the page, and its search field."""
    some = rows[:MOST_ROWS]
    search = element("input", type="search", id=f"{name}-search", autocomplete="off")
    label = element("label", "Find a client ", search, for_=f"{name}-search")
    note = f"{len(some)} of {counted(len(rows), 'client')} shown"
    status = element("span", note, id=f"{name}-status", role="status", class_="quiet")
    # Rows that are on the page already are not included again.
    more = data(rows, id=f"{name}-all") if len(rows) > len(some) else Markup("")
    listed = table(heads, some, tall=True, id=name, data_sortable="yes")
    return join(element("div", label, status, class_="tools"), listed, more)
