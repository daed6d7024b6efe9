"""Files of tables with their seal in a file beside them, as CSV has no place for one."""

from __future__ import annotations

from pathlib import Path

from umbel.checks import UsageError
from umbel.data.files import read_bytes
from umbel.runs.digests import digest
from umbel.runs.durable import write_bytes, write_text


def write_sealed(file: Path, raw: bytes) -> None:
    """Replace a file, and the one beside it that holds a digest of all of it."""
    write_text(_seal_of(file), digest([raw]) + "\n")
    write_bytes(file, raw)


def read_sealed(file: Path) -> bytes:
    """All of a file. Raises `UsageError` where its seal, if there is one, does not match."""
    raw, seal = read_bytes(file), _seal_of(file)
    if seal.is_file() and read_bytes(seal) != f"{digest([raw])}\n".encode():
        raise UsageError(f"{file}: damaged: its seal in {seal.name} does not match")
    return raw


def _seal_of(file: Path) -> Path:
    return file.with_suffix(".seal")
