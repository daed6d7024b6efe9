"""Reports of a run, or of a comparison of runs, as one self-contained HTML page."""

from umbel.report.pages.writing import write_files

__all__ = ["write_files"]
