"""What comes with the package, by name: experiments, and sentences about all else."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from umbel.checks import UsageError, command, nearest

EXPERIMENTS = Path(__file__).parents[1] / "experiments"

CATALOGUE = Path(__file__).parent / "catalogue.toml"


def catalogue(kind: str) -> dict[str, Any]:
    """A sentence for each thing of a kind, by its name; methods are in groups."""
    found: dict[str, Any] = tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))[kind]
    return found


def all_methods() -> str:
    """The names of all methods by group, for messages."""
    return "; ".join(f"{group}: {', '.join(each)}" for group, each in catalogue("methods").items())


def experiments_in(folder: Path) -> list[Path]:
    """Return the experiment files of a folder; those that start with `_` are to be extended."""
    return sorted(file for file in folder.glob("*.toml") if not file.name.startswith("_"))


def shipped_experiments() -> dict[str, Path]:
    """Every experiment of the package by name."""
    folders = (folder for folder in sorted(EXPERIMENTS.iterdir()) if folder.is_dir())
    return {file.stem: file for folder in folders for file in experiments_in(folder)}


def shipped_comparisons() -> dict[str, Path]:
    """Every folder of experiments of the package by name."""
    return {f.name: f for f in sorted(EXPERIMENTS.iterdir()) if f.is_dir() and experiments_in(f)}


def find_experiment(name: str) -> Path:
    """Find a TOML file, or an experiment of the package by name. Raises `UsageError` otherwise."""
    name = os.path.expanduser(name)  # noqa: PTH111
    if Path(name).suffix.lower() in (".csv", ".parquet", ".npz"):
        how = f"`{command('advise', name)}` says how to cluster its clients, and an experiment"
        table = "--set scenario.name=table --set scenario.path=FILE"
        raise UsageError(f"experiment: {name!r} is a file of data: {how} takes it by {table}")
    if name.endswith(".toml") or Path(name).is_file():
        return Path(name)
    known = shipped_experiments()
    if name not in known:
        if len(experiments_in(Path(name))) > 1 or name in shipped_comparisons():
            how = f"`{command('compare', name)}` runs them all"
            raise UsageError(f"experiment: {name!r} is a folder of several experiments; {how}")
        from umbel.algorithms import ALGORITHMS  # which loads PyTorch

        if name in ALGORITHMS:
            how = f"`{command('list', 'experiments', name)}` shows its experiments"
            raise UsageError(f"experiment: {name!r} is a method: {how}")
        hint = nearest(name, known, "`umbel list` shows the names, and files end in .toml")
        raise UsageError(f"experiment: {name!r} is not known; {hint}")
    return known[name]


def find_comparison(name: str) -> Path:
    """A folder of TOML files, or one of the package by name. Raises `UsageError` for neither."""
    known = shipped_comparisons()
    folder = Path(os.path.expanduser(name))  # noqa: PTH111
    if not folder.is_dir() or not experiments_in(folder):  # a folder of runs may have its name
        folder = known.get(name, folder)
    if folder.is_file() and folder.suffix != ".toml":
        how = "a comparison is of a folder of experiments; a table is the data of an experiment"
        raise UsageError(f"folder: {name!r} is a file, and not of an experiment: {how}")
    if folder.is_file() or (name in shipped_experiments() and not folder.is_dir()):
        how = f"`{command('run', name)}` runs it; a comparison is of a folder of experiments"
        raise UsageError(f"folder: {name!r} is one experiment: {how}")
    if not folder.is_dir():
        raise UsageError(f"folder: {name!r} is not known; {nearest(name, known)}")
    if (folder / "records.jsonl").is_file():
        how = f"`{command('show', name)}` prints it"
        raise UsageError(f"folder: {name!r} is one run: {how}")
    if not experiments_in(folder):
        raise UsageError(f"folder: {name!r} holds no experiment, no .toml file")
    return folder
