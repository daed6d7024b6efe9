"""The identity of a run, which its files say: one of another run may stand in a file's place."""

from __future__ import annotations

import json
from pathlib import Path

from umbel.checks import UsageError
from umbel.folder.tensor_files import header_of
from umbel.run.digests import digest

CHECKPOINT = "checkpoint.safetensors"

RUN = "run"
"""The key under which a file says it."""


def identity(folder: Path, rounds: bool = True) -> str:
    """A digest of what the run in a folder is made of, and of the number of rounds that are done.

    It is "" where the folder has no checkpoint, which says both. Without `rounds` it names the
    experiment and the clients, for files that do not change in later rounds.
    """
    header = header_of(folder / CHECKPOINT)
    if not header.get("made"):
        return ""
    said = [header["made"], header.get("next_round") if rounds else None]
    return digest([json.dumps(said, sort_keys=True).encode()])


def check_identity(file: Path, said: object, folder: Path, rounds: bool = True) -> None:
    """Raise `UsageError` if a file says that it is of another run than the folder's.

    Nothing is compared where the file does not say it, or the folder has no checkpoint.
    """
    here = identity(folder, rounds)
    if said and here and said != here:
        raise UsageError(f"{file}: is of another run than {CHECKPOINT} in {folder}")
