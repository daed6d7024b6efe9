"""The page of fidelity and its figures, from the results that are kept.

`python -m umbel.papers.page docs` writes `docs/fidelity.md` and `docs/figures/NAME.svg`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from umbel.papers.base import Reproduction
from umbel.papers.catalogue import REPRODUCTIONS
from umbel.papers.comparing import Compared, compared, has_order, reversals
from umbel.papers.figures import charts
from umbel.papers.measures import title
from umbel.papers.results import Results, kept
from umbel.report.plots import draw
from umbel.words import counted, duration

HEAD = """# Fidelity

What the papers print, beside what umbel finds. This page is written by
`python -m umbel.papers.page docs` from the results that are kept in `src/umbel/papers/kept`;
`umbel reproduce NAME` makes each again, and `umbel list papers` says how long a kept one took.

In the tables stands the mean and standard deviation over seeds, and below it *the paper's*.
**✓**: the two lie within their spreads of each other; otherwise the difference. "About" is what
the paper says in words, or shows in a figure. A *reduced* result is of a smaller problem, so that
only the order of its rows is to be compared with the paper's.
"""

MOST_REVERSALS = 8
"""Of the places where the order of rows is not the paper's so many are listed."""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_contents(), *_sections()])


def _contents() -> Iterator[str]:
    yield "| | what | kept results |"
    yield "|---|---|---|"
    for wanted in REPRODUCTIONS.values():
        found = [f"{r.size}, {counted(len(r.seeds), 'seed')}" for r in kept(wanted.name)]
        what = ", ".join(found) or "none"
        yield f"| [{wanted.name}](#{wanted.name}) | {wanted.source} | {what} |"
    yield ""


def _sections() -> Iterator[str]:
    for wanted in REPRODUCTIONS.values():
        yield f"## {wanted.name}\n"
        yield f"{wanted.source}. {wanted.title}.\n"
        yield f"*Setting.* {wanted.setting}.\n"
        best = next(kept(wanted.name), None)
        if best is None:
            yield f"No result is kept{': ' + wanted.absent if wanted.absent else ''}.\n"
        else:
            yield from _result(wanted, best)
        if wanted.remarks:
            yield f"*Remarks.* {wanted.remarks}\n"


def _result(wanted: Reproduction, found: Results) -> Iterator[str]:
    made = found.made
    if found.size == "reduced" and wanted.reduced:
        yield f"*Reduced.* {wanted.reduced}.\n"
    yield (
        f"`{made.command}`: {counted(len(found.seeds), 'seed')}, {duration(made.seconds)} on "
        f"{made.hardware}; umbel {made.versions['umbel']}, PyTorch {made.versions['torch']}.\n"
    )
    yield f"![{wanted.title}](figures/{wanted.name}.svg)\n"
    for measure in wanted.measures:
        yield from _table(wanted, found, measure)
        if has_order(wanted, found, measure):
            yield _order(wanted, found, measure) + "\n"


def _table(wanted: Reproduction, found: Results, measure: str) -> Iterator[str]:
    """Rows by columns; the paper's number below ours where it has one."""
    cells = compared(wanted, found, measure)
    columns = list(dict.fromkeys(cell.column for cell in cells))
    yield f"| {title(measure)} | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for row in dict.fromkeys(cell.row for cell in cells):
        here = {cell.column: cell for cell in cells if cell.row == row}
        yield f"| {row} | " + " | ".join(_cell(here.get(column)) for column in columns) + " |"
    yield ""


def _cell(cell: Compared | None) -> str:
    if cell is None:
        return ""
    if cell.published is None:
        return cell.ours
    verdict = "✓" if cell.within else cell.verdict
    return (
        f"{cell.ours}<br>*{cell.published}* {f'**{verdict}**' if cell.within else verdict}".strip()
    )


def _order(wanted: Reproduction, found: Results, measure: str) -> str:
    """Whether rows come in the paper's order."""
    against = list(reversals(wanted, found, measure))
    if not against:
        return (
            f"{title(measure)}: wherever the paper's rows are clearly apart, ours are not reversed."
        )
    listed = "; ".join(islice(against, MOST_REVERSALS))
    more = len(against) - MOST_REVERSALS
    return f"{title(measure)}, reversed: {listed}{f'; and {more} more' if more > 0 else ''}."


def write(folder: Path) -> None:
    """The page and its figures. Raises `UsageError` without the plotting library."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for wanted in REPRODUCTIONS.values():
        best = next(kept(wanted.name), None)
        if best is not None:
            draw(charts(wanted, best), folder / "figures" / f"{wanted.name}.svg")
    (folder / "fidelity.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
