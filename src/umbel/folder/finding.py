"""Find the runs in a folder."""

from __future__ import annotations

from pathlib import Path

from umbel.files.reading import EXPERIMENT
from umbel.folder.advised import holds_advice
from umbel.folder.run_folder import RunFolder


def runs_in(folder: Path, depth: int = 1) -> list[RunFolder]:
    """The runs in a folder, by path, and to this depth in folders in it; there may be none.

    A folder of advice holds no run before what it advises is begun there.
    """
    files = (file for n in range(1, depth + 1) for file in folder.glob("*/" * n + EXPERIMENT))
    found = sorted((RunFolder(file.parent) for file in files), key=lambda each: each.path)
    return [each for each in found if each.begun or not holds_advice(each.path)]
