"""The report of a run, or of a folder of runs, from Python."""

from __future__ import annotations

from pathlib import Path

from umbel.settings import hinting


@hinting
def write_report(
    folder: Path | str, out: Path | str | None = None, figures: Path | str | None = None
) -> Path:
    """Write the page about a run, or about all runs of a folder, and return its path.

    It is `report.html` in the folder itself unless `out` says where; with `figures`, a folder, each
    figure is also written there as a file. Raises `UsageError` where there is no run of which a
    round is done, and without the extra `umbel[report]`.
    """
    from umbel.report.pages.writing import write_files  # which takes a while to load

    page, drawings = (None if path is None else Path(path) for path in (out, figures))
    return write_files(Path(folder), page, drawings)[0]
