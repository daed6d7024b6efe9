"""A reproduction's results as tables: in the terminal, and on the page of fidelity with figures.

`python -m umbel.papers.page docs` writes `docs/fidelity.md` and `docs/figures/NAME.svg`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from umbel.papers.base import Reproduction
from umbel.papers.catalogue import REPRODUCTIONS
from umbel.papers.comparing import Compared, compared, has_order, order
from umbel.papers.figures import charts
from umbel.papers.measures import title
from umbel.papers.saved_results import SavedResults, kept
from umbel.report.figures.to_matplotlib import draw
from umbel.summary import counted, duration

HEAD = """# Fidelity

What the papers print, beside what umbel finds. This page is written by
`python -m umbel.papers.page docs` from the findings and kept results of each paper in
`src/umbel/papers`; `umbel reproduce NAME` makes the results again. Times, here and in
`umbel list papers`, are of rounds, without evaluation.

Each cell gives our mean and population standard deviation over seeds, and below it *the paper's*.
**✓**: the two lie within their spreads of each other, to half of the last decimal; otherwise the
difference. "Or more" is a lower bound: in some seed the goal was not reached, which counts with all
rounds; for rounds saved, the baseline did not reach it. It has no mark, and a difference only if
the paper's number is below it by more than the spreads.
"About" is what the paper says in words, or shows in a figure. A *reduced* result is of a smaller
problem, so that only the order of its rows is to be compared with the paper's. Two rows are
*reversed* if they come in another order than in the paper, by more than the standard deviation of
their difference in both, and by more than the last decimal here; where we have one seed, the
paper's deviation stands for ours.

Commands below that name a folder such as `runs/reproduce-reduced/NAME-seed0` go on from a run of
`umbel reproduce`, which makes that folder; `--only ROW` makes no more than the rows named.
"""


def tables(wanted: Reproduction, results: SavedResults) -> Iterator[Table | str]:
    """Text for the terminal: one table per measure, and a sentence about the order of rows."""
    yield f"{wanted.said.source}: {wanted.said.title}"
    yield f"Setting: {wanted.said.setting}"
    if results.size == "reduced" and wanted.said.reduced:
        yield f"Reduced: {wanted.said.reduced}"
    if results.size == "smoke":
        yield "Smoke: a few rounds of tiny federations show that it runs, and nothing of the paper."
    if results.missing:
        yield _part(results)
    for measure in _measured(wanted, results):
        yield _terminal_table(wanted, results, measure)
        if results.size != "smoke" and has_order(wanted, results, measure):
            yield f"{title(measure)}: {order(wanted, results, measure)}"


def _terminal_table(wanted: Reproduction, results: SavedResults, measure: str) -> Table:
    table = Table(title=title(measure), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("")
    for name in ("paper", "umbel", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    table.caption = f"{counted(len(results.seeds), 'seed')}; within: of the two spreads"
    table.caption_justify = "left"
    for row in compared(wanted, results, measure):
        paper = "" if row.published is None else str(row.published)
        verdict = "" if results.size == "smoke" else row.verdict
        table.add_row(row.row, row.column, paper, row.ours, verdict)
    return table


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_contents(), *_sections()])


def _contents() -> Iterator[str]:
    yield "| | what | kept results |"
    yield "|---|---|---|"
    for wanted in REPRODUCTIONS.values():
        what = "; ".join(map(_kept_size, kept(wanted.name))) or "none"
        yield f"| [{wanted.name}](#{wanted.name}) | {wanted.said.source} | {what} |"
    yield ""


def _kept_size(results: SavedResults) -> str:
    return ", ".join(filter(None, [results.size, results.done_so_far, results.seeds_told]))


def _part(results: SavedResults) -> str:
    return f"{results.done_so_far} results; the other runs are not done."


def shown(wanted: Reproduction) -> Iterator[SavedResults]:
    """Saved results from the largest size on, up to the first complete one."""
    for results in kept(wanted.name):
        yield results
        if not results.missing:
            return


def _sections() -> Iterator[str]:
    for wanted in REPRODUCTIONS.values():
        said = wanted.said
        yield f"## {said.name}\n"
        yield f"{said.source}. {said.title}.\n"
        yield f"*Setting.* {said.setting}\n"
        results = list(shown(wanted))
        for each in results:
            yield from _result(wanted, each)
        if not results:
            yield f"No result is kept. {said.absent}".rstrip() + "\n"
        if said.remarks:
            yield f"*Remarks.* {said.remarks}\n"


def _result(wanted: Reproduction, results: SavedResults) -> Iterator[str]:
    made = results.made
    if results.size == "reduced" and wanted.said.reduced:
        yield f"*Reduced.* {wanted.said.reduced}\n"
    yield (
        f"`{made.command}`: {results.seeds_told}, {duration(made.seconds)} of rounds on "
        f"{made.hardware}; umbel {made.versions.get('umbel', 'of an unknown version')}, "
        f"PyTorch {made.versions.get('torch', 'of an unknown version')}.\n"
    )
    if results.missing:
        yield f"*At {results.size} size, so far:* {_part(results)}\n"
    yield f"![{wanted.said.title}](figures/{_drawing(results)})\n"
    for measure in _measured(wanted, results):
        yield from _table(wanted, results, measure)
        if has_order(wanted, results, measure):
            yield f"{title(measure)}: {order(wanted, results, measure, around='*')}\n"


def _measured(wanted: Reproduction, results: SavedResults) -> Iterator[str]:
    """The measures of which there are results: some need a row that may not be finished."""
    return (measure for measure in wanted.measures if compared(wanted, results, measure))


def _drawing(results: SavedResults) -> str:
    """The figure's file; a part's does not replace that of a whole table."""
    return results.name + (f"-{results.size}" if results.missing else "") + ".svg"


def _table(wanted: Reproduction, results: SavedResults, measure: str) -> Iterator[str]:
    """Rows by columns; the paper's number is below ours if there is one."""
    cells = {(cell.row, cell.column): cell for cell in compared(wanted, results, measure)}
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    yield f"| {title(measure)} | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for row in rows:
        shown = " | ".join(_cell(cells.get((row, column))) for column in columns)
        yield f"| {row} | {shown} |"
    yield ""


def _cell(cell: Compared | None) -> str:
    if cell is None:
        return ""
    if cell.published is None:
        return cell.ours
    verdict = "**✓**" if cell.within else cell.verdict
    return f"{cell.ours}<br>*{cell.published}* {verdict}".strip()


def write(folder: Path) -> None:
    """The page and its figures. Raises `UsageError` without the plotting library."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for wanted in REPRODUCTIONS.values():
        for results in shown(wanted):
            draw(charts(wanted, results), folder / "figures" / _drawing(results))
    (folder / "fidelity.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
