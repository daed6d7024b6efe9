"""How to get back results of a finished run whose files are damaged or lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from umbel.checks import UsageError, command


@contextmanager
def putting_right(run: Path) -> Iterator[None]:
    """Say so of what resuming the run in this folder writes again; nothing else goes inside."""
    try:
        yield
    except UsageError as error:
        how = f"remove clusters.csv, and `{command('resume', run)}` writes it and the models again"
        raise UsageError(f"{error}; {how}") from None
