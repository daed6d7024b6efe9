"""A run, or a comparison of runs, as one page that needs nothing else to be looked at."""

from umbel.report.writing import write_files

__all__ = ["write_files"]
