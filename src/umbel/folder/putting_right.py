"""Advice for restoring damaged or lost result files of a finished run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from umbel.checks import UsageError
from umbel.folder.how_to_continue import way_on


@contextmanager
def putting_right(run: Path) -> Iterator[None]:
    """Inside, add the advice to errors about files that resuming the run would write again."""
    try:
        yield
    except UsageError as error:
        how = f"remove clusters.csv, and {way_on(run)} writes it and the models again"
        raise UsageError(f"{error}; {how}") from None
