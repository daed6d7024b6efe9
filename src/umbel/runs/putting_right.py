"""Advice for restoring damaged or lost result files of a finished run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from umbel.checks import UsageError, command
from umbel.runs.deployed import over_flower


@contextmanager
def putting_right(run: Path) -> Iterator[None]:
    """Inside, add the advice to errors about files that resuming the run would write again."""
    try:
        yield
    except UsageError as error:
        again = "the same `flwr run`" if over_flower(run) else f"`{command('resume', run)}`"
        how = f"remove clusters.csv, and {again} writes it and the models again"
        raise UsageError(f"{error}; {how}") from None
