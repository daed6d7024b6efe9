"""A reproduction's results as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table

from umbel.papers.base import Reproduction
from umbel.papers.comparing import compared, has_order, reversals
from umbel.papers.measures import title
from umbel.papers.results import Results
from umbel.words import counted


def tables(wanted: Reproduction, found: Results) -> Iterator[Table | str]:
    """A table a measure, the paper's numbers beside ours, and what the order of methods says."""
    yield f"{wanted.source}: {wanted.title}"
    yield f"Setting: {wanted.setting}."
    if found.size == "reduced" and wanted.reduced:
        yield f"Reduced: {wanted.reduced}."
    if found.size == "smoke":
        yield "Smoke: a few rounds of tiny federations show that it runs, and nothing of the paper."
    for measure in wanted.measures:
        yield _table(wanted, found, measure)
        if found.size != "smoke" and has_order(wanted, found, measure):
            against = list(reversals(wanted, found, measure))
            yield "\n".join(against) or f"{title(measure)}: the order of methods is the paper's"


def _table(wanted: Reproduction, found: Results, measure: str) -> Table:
    table = Table(title=title(measure), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("")
    for name in ("paper", "umbel", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    table.caption = f"{counted(len(found.seeds), 'seed')}; within: of the two spreads"
    table.caption_justify = "left"
    for row in compared(wanted, found, measure):
        paper = "" if row.published is None else str(row.published)
        verdict = "" if found.size == "smoke" else row.verdict
        table.add_row(row.row, row.column, paper, row.ours, verdict)
    return table
