"""Writing the report of a run or of a folder of runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from umbel.checks import UsageError, check
from umbel.files.atomic import write_text
from umbel.files.reading import check_no_link
from umbel.folder.run_folder import RunFolder, runs_in
from umbel.report.figures.drawing import FORMATS, check_plotting, drawn
from umbel.report.figures.panels import numbered
from umbel.report.pages.comparison_page import comparison_page
from umbel.report.pages.run_page import run_page
from umbel.result.outcomes import chosen
from umbel.result.run import Result


def write_files(
    path: Path,
    out: Path | None = None,
    figures: Path | None = None,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
) -> list[Path]:
    """Write the page, and its figures if there is a folder for them; return the files.

    In a folder of runs, `only` and `without` name the methods that the page is about, or is not.
    The page is `report.html` in the folder itself unless `out` says where. Raises `UsageError`
    where `path` holds no run of which a round is done, or a library is missing.
    """
    if importlib.util.find_spec("vl_convert") is None:
        raise UsageError('a report needs an extra: pip install "umbel[report]"')
    if figures is not None:
        check_plotting()
    if (path / "experiment.toml").is_file():
        check(not only and not without, "--only, --without", str(path), "a folder of several runs")
        text, panels = run_page(_begun(path))
    else:
        runs = chosen([Result(each) for each in runs_in(path)], only, without)
        begun = [run for run in runs if run.folder.begun and run.records]  # they may be lost
        check(bool(begun), "report", str(path), "the folder of a run, or of runs, that were begun")
        others = [run.folder.path.name for run in runs if run not in begun]
        text, panels = comparison_page(path.resolve().name, begun, others)
    page = path / "report.html" if out is None else out
    if out is None:
        check_no_link(page)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page.resolve(), text)  # for a link, its target
    written = [page]
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        names = numbered([panel.file_name for panel in panels])
        for panel, name in zip(panels, names, strict=True):
            drawing = drawn([panel.figure])
            written += [figures / f"{name}{suffix}" for suffix in FORMATS]
            for file in written[-len(FORMATS) :]:
                drawing.save(file)
    return written


def _begun(path: Path) -> Result:
    """The run of this folder. Raises `UsageError` if no round is finished."""
    run = Result(RunFolder.open(path))
    done = run.folder.begun and bool(run.records)
    check(done, "run", str(path), "a run with at least one finished round")
    return run
