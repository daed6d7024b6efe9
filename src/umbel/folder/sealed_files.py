"""Files of tables with their seal in a file beside them, as CSV has no place for one."""

from __future__ import annotations

from pathlib import Path

from umbel.checks import UsageError
from umbel.files.atomic import write_bytes, write_text
from umbel.files.reading import read_bytes
from umbel.folder.identity import check_identity, identity
from umbel.run.digests import digest


def write_sealed(file: Path, raw: bytes) -> None:
    """Replace a file, and the one beside it that holds a digest of all of it, and its run."""
    write_text(_seal_of(file), f"{digest([raw])} {identity(file.parent)}".rstrip() + "\n")
    write_bytes(file, raw)


def read_sealed(file: Path) -> bytes:
    """All of a file. Raises `UsageError` where its seal, if there is one, does not match.

    Also if the seal says that the file is of another run than the folder's.
    """
    raw, seal = read_bytes(file), _seal_of(file)
    if seal.is_file():
        whole, _, run = read_bytes(seal).removesuffix(b"\n").partition(b" ")
        if whole != digest([raw]).encode():
            raise UsageError(f"{file}: damaged: its seal in {seal.name} does not match")
        check_identity(file, run.decode(errors="replace"), file.parent)
    return raw


def _seal_of(file: Path) -> Path:
    return file.with_suffix(".seal")
