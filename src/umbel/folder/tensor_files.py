"""Files of tensors, written whole and sealed; errors of reading name the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from umbel.checks import UsageError, check_memory
from umbel.engines.alignment import aligned
from umbel.files.atomic import replacing
from umbel.files.reading import check_file
from umbel.files.seals import BLANK, BROKEN, KEY, check_seal, file_intact, seal_file

NOTHING: Mapping[str, str] = MappingProxyType({})

Header = dict[str, Any]
"""The values in a file of tensors besides these."""


def write(
    file: Path,
    tensors: Mapping[str, Tensor],
    header: Mapping[str, Any],
    settled: bool = True,
    own: bool = False,
) -> None:
    """Replace a file, which is whole whenever the process is killed; for `settled` see there.

    Only the user may read a file of their `own`.
    """
    with replacing(file, settled) as beside:
        if own:
            beside.touch(mode=0o600)
        _save(beside, tensors, {"umbel": json.dumps({KEY: BLANK, **header})})
        seal_file(beside)


def write_plain(
    file: Path, tensors: Mapping[str, Tensor], said: Mapping[str, str] = NOTHING
) -> None:
    """Write a file as `write` does, without a seal; without a header if `said` is empty."""
    with replacing(file) as beside:
        _save(beside, tensors, dict(said))


def _save(file: Path, tensors: Mapping[str, Tensor], said: dict[str, str]) -> None:
    # What safetensors writes nobody else may read, whatever other files of the process are like.
    file.touch()
    mode = file.stat().st_mode
    try:
        save_file(dict(tensors), file, said)
        file.chmod(mode)
    except SafetensorError as error:  # it says the number of what the system refused in words
        number = re.search(r"os error (\d+)", str(error))
        reason = str(error).split("I/O error: ")[-1].partition(" (os error")[0]
        raise OSError(int(number[1]) if number else None, reason) from None


DAMAGED = (*BROKEN, OSError, SafetensorError, RuntimeError)
"""Errors that reading a changed or damaged file may raise."""


@contextmanager
def reading(
    file: Path, otherwise: str, advice: str = "", *, sealed: bool = True
) -> Iterator[tuple[Any, Header]]:
    """Open a file, check its seal if it is `sealed`, and yield it with its header.

    Raises `UsageError` where it is not what it should be, and says what to do.
    """
    check_file(file)
    # A file from elsewhere may be of any size.
    check_memory(file.stat().st_size, str(file))
    try:
        with safe_open(file, framework="pt") as opened:
            header: Header = json.loads((opened.metadata() or {}).get("umbel", "{}"))
            if sealed:
                check_seal(file_intact(file))
                del header[KEY]
            yield opened, header
    except DAMAGED as error:
        raise UsageError(f"{file}: {otherwise}: {error}{advice}") from None


def header_of(file: Path) -> Header:
    """Read the header of a file without its tensors; {} if it can't be read."""
    try:
        check_file(file)
        with safe_open(file, framework="pt") as opened:
            said = json.loads((opened.metadata() or {}).get("umbel", "{}"))
            return said if isinstance(said, dict) else {}
    except DAMAGED:
        return {}


def tensors_in(opened: Any) -> dict[str, Tensor]:
    """Read all tensors of an open file by name, at aligned addresses."""
    return {name: aligned(opened.get_tensor(name)) for name in opened.keys()}  # noqa: SIM118
