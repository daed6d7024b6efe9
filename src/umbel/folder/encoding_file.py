"""The file `encoding.json` of a run: how rows of a table, or channels, became examples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from umbel.data.channel_scale import CHANNELS, ChannelScale
from umbel.data.tables.encoding import Encoding
from umbel.experiment.places import Places, for_folder, whole
from umbel.files.atomic import write_text
from umbel.files.seals import json_text, json_value
from umbel.folder.how_to_continue import way_on
from umbel.folder.identity import RUN, check_identity
from umbel.folder.tensor_files import NOTHING
from umbel.settings import whole_path

FILE = "encoding.json"


def write(
    file: Path, encoding: Encoding | ChannelScale | None, said: Mapping[str, str] = NOTHING
) -> None:
    """Write the encoding, if there is one; `said` are further keys about its run."""
    if isinstance(encoding, Encoding):
        encoding = for_folder(encoding, file.parent)
    if encoding is not None:
        write_text(file, json_text({**encoding.plain(), **said}))


def read(folder: Path) -> Encoding | ChannelScale | None:
    """Read the encoding of a run, if it has one. Raises `UsageError` for a damaged file."""
    how = f"remove it and clusters.csv, and {way_on(folder)} writes them again"
    encoding, run = read_beside(folder / FILE, how)
    check_identity(folder / FILE, run, folder)
    return encoding


def read_beside(file: Path, how: str) -> tuple[Encoding | ChannelScale | None, str | None]:
    """Read an encoding, if the file exists, and its run's identity; `how` says how to mend it."""
    said = dict[str, str]()

    def made(table: dict[str, Any]) -> Encoding | ChannelScale:
        said[RUN] = str(table.pop(RUN, ""))
        table.pop("model", None)  # whose it is, in a file beside an exported model
        return _from_plain(table)

    encoding = json_value(file, made, how)
    if isinstance(encoding, Encoding):
        was = Places.beside(file).folder
        encoding = whole(encoding, folder=whole_path(file.parent), was=was)
    return encoding, said.get(RUN)


def _from_plain(table: dict[str, Any]) -> Encoding | ChannelScale:
    kind = ChannelScale if CHANNELS in table else Encoding
    return kind.from_plain(table)
