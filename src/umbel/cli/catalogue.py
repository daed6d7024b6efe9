"""All named things by kind, for lists and the shell; the things themselves are not loaded."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from umbel.experiment.library import (
    catalogue,
    experiments_in,
    shipped_comparisons,
    shipped_experiments,
)
from umbel.summary import duration

KINDS = ("methods", "scenarios", "models", "experiments", "papers")


def entries(kind: str) -> dict[str, str]:
    """A sentence for each thing of a kind, by its name."""
    if kind == "experiments":
        return {name: _description(file) for name, file in shipped_experiments().items()}
    if kind == "papers":
        from umbel.papers.findings import findings

        return {name: f"{said.title} ({said.source})." for name, said in findings().items()}
    found = catalogue(kind)
    if kind == "methods":
        return {name: text for group in found.values() for name, text in group.items()}
    return found


def comparisons() -> dict[str, list[str]]:
    """The names of the experiments of each comparison of the package, by its name."""
    return {
        name: [file.stem for file in experiments_in(folder)]
        for name, folder in shipped_comparisons().items()
    }


def groups(kind: str) -> dict[str, list[str]]:
    """The names of each group of methods, and of each comparison of experiments."""
    if kind == "methods":
        return {group: list(sentences) for group, sentences in catalogue(kind).items()}
    return comparisons() if kind == "experiments" else {}


def times(name: str) -> str:
    """The time of the rounds of a reproduction's kept results; empty if none are kept."""
    from umbel.papers.findings import kept_files

    kept = (json.loads(file.read_text(encoding="utf-8")) for file in kept_files(name))
    took = "; ".join(f"{_size(one)} {duration(one['made']['seconds'])}" for one in kept)
    return f"took {took} (of rounds, without evaluation)" if took else ""


def _size(results: Mapping[str, Any]) -> str:
    """The size of kept results, and how many there are if they are incomplete."""
    every = results.get("every")
    part = f" ({len(results['cells'])} of {every} results)" if every else ""
    return f"{results['size']}{part}"


def _description(file: Path) -> str:
    """As a sentence."""
    said: str = tomllib.loads(file.read_text(encoding="utf-8"))["description"]
    return f"{said}."


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
