"""A folder with one file of arrays per client: the names of its arrays, and its writing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from torch import Tensor

from umbel.checks import UsageError, check
from umbel.data.attributes import FILE, Attributes, attributes_text
from umbel.data.channel_scale import ChannelScale
from umbel.data.npz import check_saved, partial_files, read_arrays
from umbel.data.splits import Split
from umbel.files.reading import check_length, files_in, read_text
from umbel.summary import in_short

GROUPS = "groups.csv"

ARRAYS = tuple(f"{name}{split}" for split in ("", "_test", "_validation") for name in "xy")
"""Names of arrays that the file of a client may contain: x and y of each split."""

CLASSES = "num_classes"
"""Name of the number of classes, an integer, saved if no example has the last label."""

SCALE = ("channel_mean", "channel_deviation")
"""Names of the scale of recordings, (C,) each, if the saved federation has one."""

KNOWN_ARRAYS = (*ARRAYS, CLASSES, *SCALE)

FILE_NAME = 'a name for a file: no / \\ , " or line break, no dot in front, no space at an end'


@dataclass(frozen=True)
class ClientFiles:
    """What the files of a folder hold: the clients of a clients."""

    names: tuple[str, ...]  # M of them
    splits: tuple[Split, ...]  # training, test, and validation if there is one
    groups: NDArray[np.int64] | None  # (M,) planted group of each client, if they are known
    num_classes: int | None  # None: regression
    attributes: Attributes
    scale: ChannelScale | None  # of recordings

    __repr__ = in_short


def write_clients(clients: ClientFiles, path: Path) -> None:
    """Write the folder that `read_clients` reads. Raises `UsageError` as `Federation.save`.

    A folder that contains exactly these files already is not changed.
    """
    for name in clients.names:
        on_a_line = name == name.strip() and not set(name) & set('/\\\0,"\r\n')
        fine = on_a_line and name != "" and not name.startswith(".")
        check(fine, "client", name, FILE_NAME)
        check_length(Path(f"{name}.npz"), f"client {name[:20]}...")
    check_length(path, "folder")
    if _is_there(clients, path):  # nothing is written, which may not be possible
        return
    path.mkdir(parents=True, exist_ok=True)
    lock = path / ".lock"
    with FileLock(lock):
        try:
            if not _is_there(clients, path):  # another process may have written it meanwhile
                _write(clients, path)
        finally:
            lock.unlink(missing_ok=True)


def _is_there(clients: ClientFiles, path: Path) -> bool:
    """Whether the folder holds these clients. Raises `UsageError` if it holds others."""
    free = not path.exists() or (path.is_dir() and not files_in(path, ".npz"))
    if not free:
        check_saved(path)
    there = not free and path.is_dir() and _is_written(clients, path)
    check(free or there, "folder", str(path), "a folder without .npz files")
    return there


def _write(clients: ClientFiles, path: Path) -> None:
    """Write all files into a folder without `.npz` files, or none."""
    texts, killed = _texts(clients), partial_files(path)
    for file, text in texts.items():
        # A save that was killed began with its own texts, which may be replaced.
        fine = killed or not (path / file).exists() or _says(path / file, text)
        check(
            bool(fine), "folder", str(path / file), "what these clients are saved with; remove it"
        )
    for left in (*killed, *(path / file for file in texts)):
        left.unlink(missing_ok=True)
    partial = [path / f"{client}.partial" for client in range(len(clients.names))]
    try:
        for each, (_, arrays) in zip(partial, _arrays(clients), strict=True):
            with each.open("wb") as opened:
                np.savez(opened, **arrays)
        for name, text in texts.items():
            if text:
                (path / name).write_text(text, encoding="utf-8")
    except BaseException:
        for each in (*partial, *(path / file for file in texts)):
            each.unlink(missing_ok=True)
        raise
    # Until the last file has its name, a partial one shows that clients are missing.
    for each, name in zip(partial, clients.names, strict=True):
        each.replace(path / f"{name}.npz")


def _arrays(clients: ClientFiles) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the arrays of each client, with classes beyond the labels and the scale."""
    beside = {}
    classes, scale = clients.num_classes, clients.scale
    seen = max((int(split.y.max()) + 1 for split in clients.splits if len(split.y)), default=0)
    if classes not in (None, seen):
        beside[CLASSES] = np.array(classes)
    if scale is not None:
        beside |= zip(SCALE, map(np.array, (scale.mean, scale.deviation)), strict=True)
    for client, name in enumerate(clients.names):
        values = [_array(each) for split in clients.splits for each in split.of(client)]
        yield name, dict(zip(ARRAYS, values, strict=False)) | beside


def _texts(clients: ClientFiles) -> dict[str, str]:
    """The texts of the other files by name; empty for a file that is not written."""
    groups = [] if clients.groups is None else clients.groups.tolist()
    lines = [f"{name},{group}\n" for name, group in zip(clients.names, groups, strict=False)]
    known = attributes_text(clients.names, clients.attributes)
    return {FILE: known, GROUPS: "".join(lines)}


def _says(file: Path, text: str) -> bool:
    """Whether a file has the lines of a text; one without lines is not there."""
    try:
        lines = read_text(file).splitlines() if file.exists() else []
    except UsageError:  # cut in the middle of a character
        return False
    return lines == text.splitlines()


def _is_written(clients: ClientFiles, path: Path) -> bool:
    """Whether a folder contains exactly the files that would be written."""
    if {file.stem for file in files_in(path, ".npz")} != set(clients.names):
        return False
    try:
        return all(_says(path / name, text) for name, text in _texts(clients).items()) and all(
            _are_equal(read_arrays(path / f"{name}.npz", KNOWN_ARRAYS), arrays)
            for name, arrays in _arrays(clients)
        )
    except UsageError:  # an unreadable file is not one of these
        return False


def _are_equal(some: Mapping[str, NDArray[Any]], others: Mapping[str, NDArray[Any]]) -> bool:
    return some.keys() == others.keys() and all(
        some[name].dtype == others[name].dtype and np.array_equal(some[name], others[name])
        for name in others
    )


def _array(values: Tensor) -> NDArray[Any]:
    """The values for a file; bfloat16, which NumPy lacks, becomes float32 without loss."""
    wider = values.float() if values.dtype == torch.bfloat16 else values
    array: NDArray[Any] = wider.numpy()
    return array
