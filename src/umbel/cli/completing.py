"""What the shell may complete: names of what comes with the package, and folders of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from umbel.cli.catalogue import KINDS, entries
from umbel.experiment.library import shipped_comparisons, shipped_experiments

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def offering(names: Callable[[], Iterable[str]], otherwise: str | None = None) -> Completer:
    """Completes names; where none starts so, files ("file") or folders ("dir")."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        offered = [CompletionItem(name) for name in names() if name.startswith(incomplete)]
        if offered or otherwise is None:
            return offered
        return [CompletionItem(incomplete, type=otherwise)]

    return complete


def _runs() -> list[str]:
    """The folders in `runs` of runs, and of comparisons."""
    files = [*Path("runs").glob("*/experiment.toml"), *Path("runs").glob("*/*/experiment.toml")]
    folders = {file.parent for file in files}
    comparisons = {folder.parent for folder in folders} - {Path("runs")}
    return sorted(map(str, folders | comparisons))


complete_kinds = offering(lambda: KINDS)
complete_experiments = offering(shipped_experiments, "file")
complete_comparisons = offering(shipped_comparisons, "dir")
complete_papers = offering(lambda: entries("papers"))
complete_runs = offering(_runs, "dir")
