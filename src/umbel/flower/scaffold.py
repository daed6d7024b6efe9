"""A new Flower app that runs an experiment: written from a template, ready for `flwr run`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from umbel.checks import UsageError, check
from umbel.files.atomic import write_text
from umbel.files.reading import read_text
from umbel.flower.carried import check_names

TEMPLATE = Path(__file__).parent / "template"
FILES = (
    *("pyproject.toml", "experiment.toml", "gitignore"),
    *("app/__init__.py", "app/server.py", "app/client.py"),
)
NO_CODE: Mapping[str, Path] = MappingProxyType({})


def write_app(
    folder: Path, experiment: str | None = None, code: Mapping[str, Path] = NO_CODE
) -> list[Path]:
    """Write the files of an app into a new folder; the app's package is named after it.

    `experiment` is the text of its experiment file, if not that of the template, and `code` has the
    files that are copied, by their paths in the app. Raises `UsageError` where there is something
    already.
    """
    name = folder.resolve().name
    fine = re.fullmatch(r"[a-z][a-z0-9-]*", name) is not None
    check(fine, "folder", name, "a name for the app, of small letters, digits and -")
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder}: already exists and is not empty")
    package = name.replace("-", "_")
    expected = "a name for the app: an installed package or a module of Python has this one"
    check(not _is_taken(package), "folder", name, expected)
    check_names([*code], package)
    texts = {
        **dict(_texts(name, package, experiment)),
        **{at: read_text(file) for at, file in code.items()},
    }
    written: list[Path] = []
    try:
        for file, text in texts.items():
            written.append(folder / file)
            written[-1].parent.mkdir(parents=True, exist_ok=True)
            write_text(written[-1], text)
    except OSError:
        places = {place for file in texts for place in (folder / file).parents}
        below = sorted(places & {folder, *folder.rglob("*")}, key=lambda each: -len(each.parts))
        for place in (*written, *below):  # so that the command can be repeated
            with suppress(OSError):
                remove = place.rmdir if place.is_dir() else place.unlink
                remove()
        raise
    return written


def _is_taken(package: str) -> bool:
    """Return True if Python or an installed library has a module of this name."""
    if package in {"umbel", *sys.stdlib_module_names}:
        return True
    found = find_spec(package)
    origin = None if found is None else found.origin
    return origin is not None and bool({"site-packages", "dist-packages"} & {*Path(origin).parts})


def _texts(name: str, package: str, experiment: str | None) -> Iterator[tuple[str, str]]:
    """The files of the app and their texts."""
    for file in FILES:
        if file == "experiment.toml" and experiment is not None:
            yield file, experiment
            continue
        text = (TEMPLATE / file).read_text(encoding="utf-8")
        for key, value in {"name": name, "package": package}.items():
            text = text.replace("{" + key + "}", value)
        yield file.replace("app/", f"{package}/").replace("gitignore", ".gitignore"), text


def sent_with(run: Path) -> Path | None:
    """Return the app folder, if any, whose upload by Flower sends this run to every node.

    Newer apps have a `.gitignore` that excludes the runs; apps of earlier versions lack it.
    """
    for folder in run.resolve().parents:
        app = folder / "pyproject.toml"
        if app.is_file() and "[tool.flwr.app]" in app.read_text(encoding="utf-8", errors="ignore"):
            try:
                text = (folder / ".gitignore").read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                text = ""  # Flower, too, reads no pattern from such a file
            excluded = {line.strip().strip("/") for line in text.splitlines()}
            return None if run.resolve().relative_to(folder).parts[0] in excluded else folder
    return None
