"""The picture in docs/report.md: python -m tests.report.picture RUN COMPARISON OUT.png

RUN is the folder of a run, COMPARISON that of a comparison.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from umbel.folder.run_folder import RunFolder, runs_in
from umbel.report.figures.drawing import drawn
from umbel.report.pages.comparison_page import comparison_page
from umbel.report.pages.run_page import run_page
from umbel.result.run import Result

SHOWN = ("Accuracy", "Who is in which cluster", "Similarity of clients", "Lead of", "Each client")
"""The figures that are shown, by how their titles begin."""


def picture(run: Path, comparison: Path, out: Path) -> None:
    """Figures of both reports, side by side."""
    _, of_run = run_page(Result(RunFolder.open(run)))
    _, of_methods = comparison_page("", list(map(Result, runs_in(comparison))), [])
    figures = [panel.figure for panel in (*of_methods, *of_run)]
    drawn([each for each in figures if each.title.startswith(SHOWN)]).save(out)
    Image.open(out).quantize(128).save(out, optimize=True)


if __name__ == "__main__":
    picture(*map(Path, sys.argv[1:4]))
