"""What there is, by kind: names, and a sentence each, read without loading what they name."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

from umbel.runs.library import experiments_in, shipped_comparisons, shipped_experiments
from umbel.words import duration

KINDS = ("methods", "scenarios", "models", "experiments", "papers")

CATALOGUE = Path(__file__).parent / "catalogue.toml"

KEPT = Path(__file__).parents[1] / "papers" / "kept"
"""Results of reproductions that come with the package."""


def entries(kind: str) -> dict[str, str]:
    """A sentence for each thing of a kind, by its name."""
    if kind == "experiments":
        return {name: _description(file) for name, file in shipped_experiments().items()}
    table: dict[str, dict[str, str]] = tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))
    return table[kind]


def comparisons() -> dict[str, list[str]]:
    """The names of the experiments of each comparison of the package, by its name."""
    return {
        name: [file.stem for file in experiments_in(folder)]
        for name, folder in shipped_comparisons().items()
    }


def times(name: str) -> str:
    """How long it took to make the kept results of a reproduction; nothing where none are kept."""
    found = "; ".join(f"{size} {duration(seconds)}" for size, seconds in _seconds(name))
    return f"took {found}" if found else ""


def _description(file: Path) -> str:
    """As a sentence."""
    said: str = tomllib.loads(file.read_text(encoding="utf-8"))["description"]
    return f"{said}."


def _seconds(name: str) -> Iterator[tuple[str, float]]:
    for size in ("full", "reduced"):
        file = KEPT / f"{name}-{size}.json"
        if file.is_file():
            yield size, json.loads(file.read_text(encoding="utf-8"))["made"]["seconds"]
