"""Your own clients: a folder with one file of arrays per client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.checks import UsageError, check
from umbel.data.attributes import FILE, attributes_text, read_attributes
from umbel.data.channel_scale import ChannelScale
from umbel.data.federation import Federation
from umbel.data.files import check_length, files_in, read_text
from umbel.data.groups import LARGEST, read_groups
from umbel.data.npz import check_saved, client_files, partial_files, read_arrays
from umbel.data.scenarios.base import Scenario, check_validation
from umbel.data.sources import Sources
from umbel.data.splits import by_name, set_apart
from umbel.seeds import Stream
from umbel.summary import few

FILE_NAME = 'a name for a file: no / \\ , " or line break, no dot in front, no space at an end'

GROUPS = "groups.csv"

ARRAYS = tuple(f"{name}{split}" for split in ("", "_test", "_validation") for name in "xy")
"""Names of arrays that the file of a client may contain: x and y of each split."""

CLASSES = "num_classes"
"""Name of the number of classes, an integer, saved if no example has the last label."""

SCALE = ("channel_mean", "channel_deviation")
"""Names of the scale of recordings, (C,) each, if the saved federation has one."""

KNOWN = (*ARRAYS, CLASSES, *SCALE)


@dataclass(frozen=True)
class Folder(Scenario):
    """One `.npz` file per client, named after it, with arrays `x` and `y`.

    Every file, or none, may also have the test examples `x_test` and `y_test`; without them a
    random `test_fraction` is set apart. In the same way files may have the validation examples
    `x_validation` and `y_validation`; without them a random `validation_fraction` is set apart, if
    one is given. A file `groups.csv` with lines `client,group` has the planted groups, if they are
    known, and `attributes.csv` with a header `client,NAME,...` other known facts about clients. A
    number `num_classes` in files is the number of labels, for data in which the last label does not
    occur.
    """

    path: str = "clients"
    test_fraction: float = 0.15
    num_classes: int | None = None  # default: the number in files, or the largest label plus one
    validation_fraction: float | None = None  # of what is left for training, for validation

    def __post_init__(self) -> None:
        check(0 <= self.test_fraction < 1, "test_fraction", self.test_fraction, "in [0, 1)")
        check_validation(self.validation_fraction)
        classes = self.num_classes
        check(classes is None or classes >= 1, "num_classes", classes, "1 or more")

    def build(self, seed: int, sources: Sources) -> Federation:  # noqa: ARG002
        return read_clients(
            Path(self.path),
            self.num_classes,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )


def read_clients(
    path: Path,
    num_classes: int | None,
    test_fraction: float = 0.0,
    validation_fraction: float = 0.0,
    seed: int = 0,
    drawn_by_name: bool = False,
) -> Federation:
    """The clients of a folder of `.npz` files, or of a single file. See `Folder`.

    Test examples that are `drawn_by_name`, and the numbers of groups that are words, do not depend
    on the other clients, who may be in other folders.
    """
    files = _files(path)
    loaded = [_load(file) for file in files]
    names = [file.stem for file in files]
    train = [(arrays["x"], arrays["y"]) for arrays in loaded]
    test = _pairs(path, names, loaded, "test")
    # Invalid examples are reported, as always, when the federation is made.
    if drawn_by_name and test is None and all(x.shape[:1] == y.shape[:1] != () for x, y in train):
        rngs = by_name(seed, Stream.DATA, names)
        train, test = set_apart(train, names, test_fraction, "test_fraction", rngs)
    federation = Federation.from_arrays(
        train,
        test,
        validation=_pairs(path, names, loaded, "validation"),
        names=names,
        groups=None if path.is_file() else read_groups(path / GROUPS, names, drawn_by_name),
        attributes={} if path.is_file() else read_attributes(path, tuple(names)),
        num_classes=_classes(files, loaded) if num_classes is None else num_classes,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        seed=seed,
    )
    return replace(federation, encoding=_scale(files, loaded))


def read_inputs(path: Path, num_classes: int | None) -> Federation:
    """Clients without labels, or with labels that are ignored; all labels are zeros."""
    kind = np.float32 if num_classes is None else np.int64
    files = _files(path)
    loaded = [_load(file, needed=("x",)) for file in files]
    for file, each in zip(files, loaded, strict=True):
        check(each["x"].ndim > 0, f"{file}: x", "a single number", "an array of examples")
    pairs = [(each["x"], np.zeros(len(each["x"]), dtype=kind)) for each in loaded]
    names = [file.stem for file in files]
    made = Federation.from_arrays(pairs, names=names, num_classes=num_classes, test_fraction=0.0)
    return replace(made, encoding=_scale(files, loaded))


def write_clients(federation: Federation, path: Path) -> None:
    """Write the folder that `read_clients` reads. Raises `UsageError` as `Federation.save`.

    A folder that contains exactly these files already is not changed.
    """
    for name in federation.names:
        on_a_line = name == name.strip() and not set(name) & set('/\\\0,"\r\n')
        fine = on_a_line and name != "" and not name.startswith(".")
        check(fine, "client", name, FILE_NAME)
        check_length(Path(f"{name}.npz"), f"client {name[:20]}...")
    check_length(path, "folder")
    free = not path.exists() or (path.is_dir() and not files_in(path, ".npz"))
    if not free:
        check_saved(path)
        if _is_written(federation, path):
            return
    check(free, "folder", str(path), "a folder without .npz files")
    texts = {file: text for file, text in _texts(federation).items() if text}
    for file in {FILE, GROUPS} - set(texts):
        expected = "there for these clients, of whom nothing is known; remove it"
        check(not (path / file).exists(), "folder", str(path / file), expected)
    path.mkdir(parents=True, exist_ok=True)
    for left in partial_files(path):  # of a process that was killed
        left.unlink()
    partial = [path / f"{client}.partial" for client in range(federation.num_clients)]
    whole = [path / f"{name}.npz" for name in federation.names]
    try:
        _write_arrays(federation, partial)
        for file, text in texts.items():
            (path / file).write_text(text, encoding="utf-8")
        # Last: until the last file has its name, a partial one shows that clients are missing.
        for one, other in zip(partial, whole, strict=True):
            one.replace(other)
    except BaseException:
        for each in (*whole, *partial):
            each.unlink(missing_ok=True)
        raise


def _write_arrays(federation: Federation, files: Sequence[Path]) -> None:
    beside = _beside(federation)
    for client, file in enumerate(files):
        with file.open("wb") as opened:
            np.savez(opened, **_arrays(federation, client), **beside)


def _arrays(federation: Federation, client: int) -> dict[str, Any]:
    """The arrays in the file of a client."""
    values = [each for split in federation.splits for each in split.of(client)]
    return {name: _array(each) for name, each in zip(ARRAYS, values, strict=False)}


def _beside(federation: Federation) -> dict[str, Any]:
    """Further content of each file: classes beyond the labels, and the scale of channels."""
    classes, scale = federation.num_classes, federation.encoding
    seen = max((int(split.y.max()) + 1 for split in federation.splits if len(split.y)), default=0)
    beside = {} if classes in (None, seen) else {CLASSES: np.array(classes)}
    if isinstance(scale, ChannelScale):
        values = (np.array(scale.mean), np.array(scale.deviation))
        beside |= dict(zip(SCALE, values, strict=True))
    return beside


def _texts(federation: Federation) -> dict[str, str]:
    """The texts of the other files by name; empty for a file that is not written."""
    groups = [] if federation.groups is None else federation.groups.tolist()
    lines = [f"{name},{group}\n" for name, group in zip(federation.names, groups, strict=False)]
    known = attributes_text(federation.names, federation.attributes)
    return {FILE: known, GROUPS: "".join(lines)}


def _is_written(federation: Federation, path: Path) -> bool:
    """Whether a folder contains exactly the files that would be written."""
    if not path.is_dir() or {file.stem for file in files_in(path, ".npz")} != set(federation.names):
        return False
    try:
        for name, text in _texts(federation).items():
            said = read_text(path / name, LARGEST) if (path / name).exists() else ""
            if said.splitlines() != text.splitlines():
                return False
        beside = _beside(federation)
        return all(
            _are_equal(
                read_arrays(path / f"{name}.npz", KNOWN), _arrays(federation, client) | beside
            )
            for client, name in enumerate(federation.names)
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


def _files(path: Path) -> list[Path]:
    """The files of the clients, one each."""
    if not path.exists():
        raise UsageError(f"{path}: there is no such folder or file")
    return [path] if path.is_file() else client_files(path)


def _load(file: Path, needed: Sequence[str] = ("x", "y")) -> dict[str, NDArray[Any]]:
    found = read_arrays(file, KNOWN)
    lacking = " and ".join(name for name in needed if name not in found)
    if lacking:
        wanted = "arrays x and y are" if len(needed) > 1 else "an array x is"
        raise UsageError(f"{file}: lacks {lacking}: {wanted} needed")
    return found


def _classes(files: Sequence[Path], loaded: Sequence[Mapping[str, NDArray[Any]]]) -> int | None:
    """The number of labels that the files state, or None."""
    said: dict[int, Path] = {}
    for file, arrays in zip(files, loaded, strict=True):
        if CLASSES in arrays:
            number = arrays[CLASSES]
            whole = number.shape == () and number.dtype.kind in "iu"
            check(whole, f"{file}: {CLASSES}", f"{number.dtype} {number.shape}", "a whole number")
            said[int(number)] = file
    if len(said) > 1:
        numbers = " and ".join(f"{number} in {file.name}" for number, file in said.items())
        raise UsageError(f"{files[0].parent}: {CLASSES}: {numbers}; all files need the same")
    return next(iter(said), None)


def _scale(
    files: Sequence[Path], loaded: Sequence[Mapping[str, NDArray[Any]]]
) -> ChannelScale | None:
    """The scale of channels that the files state, or None."""
    found: dict[ChannelScale | None, Path] = {}
    for file, arrays in zip(files, loaded, strict=True):
        said = [arrays[name].tolist() for name in SCALE if name in arrays]
        try:
            scale = ChannelScale.from_plain(dict(zip(("mean", "deviation"), said, strict=True)))
        except (ValueError, TypeError):
            expected = "a mean and a deviation of each channel"
            check(not said, f"{file}: {SCALE[0]}, {SCALE[1]}", said, expected)
            scale = None
        found[scale] = file
    if len(found) > 1:
        names = " and ".join(file.name for file in found.values())
        differs = f"{SCALE[0]} differs between {names}: all files need the same"
        raise UsageError(f"{files[0].parent}: {differs}")
    return next(iter(found), None)


def _pairs(
    path: Path, names: Sequence[str], loaded: Sequence[Mapping[str, NDArray[Any]]], split: str
) -> list[tuple[NDArray[Any], NDArray[Any]]] | None:
    """The examples of a split, None if no file has any. Raises `UsageError` if some files do."""
    x, y = f"x_{split}", f"y_{split}"
    if not any(x in arrays or y in arrays for arrays in loaded):
        return None
    both = [x in arrays and y in arrays for arrays in loaded]
    without = [name for name, has in zip(names, both, strict=True) if not has]
    if without:
        wanted = f"{x} and {y} are needed in every file or in none"
        raise UsageError(f"{path}: {wanted}; clients without them: {few(without)}")
    return [(arrays[x], arrays[y]) for arrays in loaded]
