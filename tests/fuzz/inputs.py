"""What a wrong input of the command line is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


def nothing(folder: Path) -> None:
    """Some inputs need no files."""


@dataclass(frozen=True)
class Wrong:
    """Arguments of `umbel`, and files beside them."""

    name: str
    arguments: tuple[str, ...]
    prepare: Callable[[Path], object] = nothing
    ends: tuple[int, ...] = (2,)  # exit statuses that are right
