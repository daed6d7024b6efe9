"""A reproduction's results as tables: in the terminal, and on the pages of fidelity with figures.

`python -m umbel.papers.page docs` writes `docs/fidelity.md`, a verdict on each claim and each
table, and `docs/figures/NAME.svg`. `make docs` writes the page of each paper in `docs/fidelity`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from umbel.papers.base import Reproduction
from umbel.papers.catalogue import REPRODUCTIONS
from umbel.papers.comparing import Compared, compared, has_order, judged, order, pairs
from umbel.papers.figures import charts
from umbel.papers.findings import Claim, Paper, papers
from umbel.papers.measures import title
from umbel.papers.saved_results import SavedResults, kept
from umbel.report.figures.drawing import draw
from umbel.summary import counted, duration

PROCESSORS_FILE = Path(__file__).parent / "processors.md"
"""The table that `benchmarks.processors` has written."""

HEAD = """# Fidelity

What of the papers holds here, what does not, and what nobody tested. `python -m umbel.papers.page
docs` writes this page, from the tables and figures that `umbel reproduce` makes.

```{toctree}
:hidden:

PAGES
```

## The claims

Two rows are *told apart* if their means differ by more than two standard errors of the difference,
and than the last decimal. For one seed, whose deviation is not known, the paper's stands in; where
the paper prints none, any difference counts: such a verdict is no more than one run. A claim
*holds* if every pair of rows that is told apart is as it says, *in part* if only some are.
"""

CLAIMS = """
| PAPER | here | as claimed | against | not apart | size | seeds | shown by |
|---|---|---|---|---|---|---|---|
"""

TABLES = """
## The tables and figures

- **Size**: *full* is the paper's; *reduced* is a smaller problem, so that only the order of its
  rows is to be compared with the paper's. "8 of 12" means that the other results are not made yet.
- **Pairs** of two rows of one column, by all measures that the paper prints: in the paper's order,
  reversed, or not told apart, here or in the paper.
- **Agree**: the numbers that lie within two standard errors of the paper's, of those that can be
  judged: both have a spread, from two or more seeds (the papers' means are taken to be of five).
- **Largest difference**: our number minus the paper's, where it is more than two standard errors,
  by the first measure.
- **Again**: `umbel reproduce NAME --size SIZE --seeds N` makes a line again, and `--only ROW --only
  COLUMN` a part of it. On another processor a run is another run, as rounding grows: see below.

| table or figure | size | seeds | in order | reversed | not apart | agree | largest difference \
| cause |
|---|---|---|---|---|---|---|---|---|
"""

PROCESSORS = """
## Other processors

The same run, with the same seed, ends elsewhere on other instructions, as the last bits of sums
differ: mostly by less than a point, at times by 5 points or 11 rounds, and where a method decides
by a threshold, as CFL does, by all that the decision is worth. A line above that stands on one seed
is to be read with that in mind.
`python -m benchmarks.processors` makes three runs with all instructions of the processor, and with
SSE4.1:

"""

LEGEND = """Each cell gives our mean and population standard deviation over seeds, and below it *the
paper's*. ✓: both have a spread, and the means lie within two standard errors of their difference;
otherwise the difference. "Or more" is a lower bound: in some seed the goal was not reached, which
counts with all rounds; for rounds saved, the baseline did not reach it. "About" is what the paper
says in words, or shows in a figure. Times are of rounds, without evaluation.

Commands that name a folder such as `runs/reproduce-reduced/NAME-seed0` go on from a run of
`umbel reproduce`, and "on the run" means `umbel run` with the `experiment.toml` of that folder and
`--runs-dir` of another; `--only ROW` makes no more than the rows named.
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
    table.caption = f"{counted(len(results.seeds), 'seed')}; agrees: within two standard errors"
    table.caption_justify = "left"
    for row in compared(wanted, results, measure):
        paper = "" if row.published is None else str(row.published)
        verdict = "" if results.size == "smoke" else row.verdict
        table.add_row(row.row, row.column, paper, row.ours, verdict)
    return table


def verdicts() -> str:
    """The page of verdicts: each paper's claims, each table and figure, and other processors."""
    names = "\n".join(f"fidelity/{paper.name}" for paper in papers())
    lines = [HEAD.replace("PAGES", names)]
    for paper in papers():
        lines.append(CLAIMS.replace("PAPER", paper.title))
        lines += [f"{_claim(claim)}\n" for claim in paper.claims]
    rows = [row for paper in papers() for said in paper.sections for row in _verdict(said.name)]
    lines += [TABLES, *(f"{row}\n" for row in rows)]
    return "".join(lines) + PROCESSORS + PROCESSORS_FILE.read_text(encoding="utf-8")


def _claim(claim: Claim) -> str:
    """A row of a table of claims."""
    if claim.name == "-":
        return f"| {claim.text} | **not tested**: {claim.why} | | | | | | |"
    wanted = REPRODUCTIONS[claim.name]
    found = judged(claim, wanted, shown(wanted))
    link, here = f"[{claim.name}](#{claim.name})", f"**{found.verdict}**"
    if found.results is None:
        why = wanted.said.absent or "these rows are not made yet"
        return f"| {claim.text} | {here}: {why} | | | | | | {link} |"
    counts = [str(found.kept.count(kind)) for kind in (True, False, None)]
    size, seeds = found.results.size, _seeds(found.results)
    return f"| {' | '.join([claim.text, here, *counts, size, seeds, link])} |"


def _seeds(results: SavedResults) -> str:
    return results.seeds_told.removesuffix(" seeds").removesuffix(" seed")


def paper_page(paper: Paper) -> str:
    """The page of a paper, with a section for each table and figure."""
    return "\n".join([f"# {paper.title}\n", LEGEND, *_sections(paper)])


def _verdict(name: str) -> Iterator[str]:
    """A row of the table of verdicts for each result that is shown, or one if there is none."""
    wanted, head = REPRODUCTIONS[name], f"[{name}](#{name})"
    cause = wanted.said.cause
    results = list(shown(wanted))
    if not results:
        yield f"| {head} | none kept | | | | | | | {wanted.said.absent} |"
    for each in results:
        kept_orders = [pair.kept for name in wanted.measures for pair in pairs(wanted, each, name)]
        counts = [str(kept_orders.count(kind)) for kind in (True, False, None)]
        size = ", ".join(filter(None, [each.size, each.done_so_far]))
        numbers = [c for name in wanted.measures for c in compared(wanted, each, name)]
        spread = [number.agrees for number in numbers if number.agrees is not None]
        agree = f"{sum(spread)} of {len(spread)}" if spread else ""
        worst = _largest_difference(wanted, each)
        cells = [head, size, _seeds(each), *counts, agree, worst, cause]
        yield f"| {' | '.join(cells)} |"
        head, cause = "", ""


def _largest_difference(wanted: Reproduction, results: SavedResults) -> str:
    """The largest difference of two standard errors or more, of the first measure with one."""
    known = False
    for measure in wanted.measures:
        cells = [c for c in compared(wanted, results, measure) if c.near is not None]
        known = known or bool(cells)
        apart = [cell for cell in cells if not cell.near]
        if apart:
            worst = max(apart, key=lambda cell: abs(cell.difference or 0.0))
            return f"{title(measure)}: {worst.verdict} ({worst.row}; {worst.column})"
    return "all within" if known else "no number printed"


def _part(results: SavedResults) -> str:
    return f"{results.done_so_far} results; the other runs are not done."


def shown(wanted: Reproduction) -> Iterator[SavedResults]:
    """Saved results from the largest size on, up to the first complete one."""
    for results in kept(wanted.name):
        yield results
        if not results.missing:
            return


def _sections(paper: Paper) -> Iterator[str]:
    for said in paper.sections:
        wanted = REPRODUCTIONS[said.name]
        yield f"({said.name})=\n## {said.name}\n"
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
    yield f"![{wanted.said.title}](../figures/{_drawing(results)})\n"
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
    verdict = "✓" if cell.agrees else cell.verdict
    return f"{cell.ours}<br>*{cell.published}* {verdict}".strip()


def write(folder: Path) -> None:
    """The page of verdicts and the figures. Raises `UsageError` without the plotting library."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for wanted in REPRODUCTIONS.values():
        for results in shown(wanted):
            draw(charts(wanted, results), folder / "figures" / _drawing(results))
    (folder / "fidelity.md").write_text(verdicts(), encoding="utf-8")


def write_papers(folder: Path) -> None:
    """The pages of the papers, which link to the figures."""
    (folder / "fidelity").mkdir(exist_ok=True)
    for paper in papers():
        file = folder / "fidelity" / f"{paper.name}.md"
        file.write_text(paper_page(paper), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
