"""Code that an experiment needs beside its TOML file: apps carry it, or nodes install it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from umbel.checks import UsageError
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.layers import flat, strangers_in
from umbel.experiment.places import with_paths
from umbel.experiment.toml_file import plain
from umbel.files.reading import read_text
from umbel.networks.encoders import PACKAGE


@dataclass(frozen=True)
class Carried:
    """The files to copy into an app's root by their paths there, and a line for all else."""

    files: dict[str, Path]
    others: tuple[str, ...]


def carried(experiment: ExperimentSettings, beside: Path, app: Path) -> Carried:
    """Find the files and packages that an experiment needs; its file is in the folder `beside`.

    Modules and those that they import from the same folder are copied; nothing is imported.
    """
    table = plain(experiment)
    files: dict[str, Path] = {}
    others: list[str] = []
    places = [beside, *map(Path, dict.fromkeys(["", *sys.path]))]
    for name in dict.fromkeys(each.partition(":")[0] for each in strangers_in(table)):
        top = name.partition(".")[0]
        root = next((place for place in places if _is_own(place, top)), None)
        if root is not None:
            files |= _with_imported(root, top, {})
        elif find_spec(top) is not None:
            others.append(f"{name} is installed here: install it at the server and every node, too")
        else:
            others.append(f"{name} is not found: put it into {app}, beside experiment.toml")
    for key, value in flat(table):
        if isinstance(value, str) and value.startswith(PACKAGE):
            package = value.removeprefix(PACKAGE)
            others.append(f"{key}: install {package} at the server and every node")

    def listed(keys: Sequence[str], path: str) -> str:
        others.append(_of_path(keys, path))
        return path

    with_paths(experiment, listed)
    return Carried(files, tuple(others))


def _of_path(keys: Sequence[str], path: str) -> str:
    """Say where a file or folder that the experiment names must be."""
    stays = f"{'.'.join(keys)}: {path} is not sent: every node reads it at this path"
    data = "" if keys[-1] != "path" else ", or its own clients, by --node-config 'data=\"...\"'"
    return stays + data


def _is_own(place: Path, top: str) -> bool:
    """Return True if a folder holds a module of this name that is not of an installed package."""
    installed = {"site-packages", "dist-packages"} & {*place.absolute().parts}
    installed |= {"lib"} if place.absolute().is_relative_to(sys.base_prefix) else set()
    return not installed and any(True for _ in _sources(place, top))


def _sources(root: Path, top: str) -> Iterator[Path]:
    """The files of a module or a package in this folder."""
    file, package = root / f"{top}.py", root / top
    if (package / "__init__.py").is_file() or not file.is_file():
        yield from (each for each in sorted(package.rglob("*.py")) if each.is_file())
    else:
        yield file


def _with_imported(root: Path, top: str, found: dict[str, Path]) -> dict[str, Path]:
    """The files of a module, and of all in the same folder that they import, added to `found`."""
    for file in _sources(root, top):
        name = file.relative_to(root).as_posix()
        # Modules may import each other: a file that was found is not looked at again.
        if name not in found:
            found[name] = file
            for other in _imports(file) - {"umbel", *sys.stdlib_module_names}:
                _with_imported(root, other, found)
    return found


def _imports(file: Path) -> set[str]:
    """The first parts of the names of modules that a file imports, by its text."""
    try:
        tree = ast.parse(read_text(file))
    except (SyntaxError, ValueError):  # it is refused where it is imported
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def check_names(files: Sequence[str], package: str) -> None:
    """Raise `UsageError` if a file would take the place of one of the app's own."""
    taken = {name for name in files if name.partition("/")[0].removesuffix(".py") == package}
    if taken:
        has = f"a name for the app: its experiment needs a module of this name, {min(taken)}"
        raise UsageError(f"folder: {package!r} is not {has}")
