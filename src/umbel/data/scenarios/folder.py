"""Your own clients: a folder with one file of arrays per client."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_least
from umbel.data.attributes import read_attributes
from umbel.data.channel_scale import ChannelScale
from umbel.data.client_files import CLASSES, GROUPS, KNOWN_ARRAYS, SCALE
from umbel.data.federation import Federation
from umbel.data.groups import read_groups
from umbel.data.npz import client_files, read_arrays
from umbel.data.scenarios.base import Planned, Scenario, check_unplanned
from umbel.data.sources import Sources
from umbel.data.splits import by_name, set_apart
from umbel.data.tables.parts import check_fractions
from umbel.seeds import Stream
from umbel.settings import whole_path
from umbel.summary import few


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

    path: str = "clients"  # folder with a .npz file for each client
    test_fraction: float = 0.15  # of each client's examples, if files have no test examples
    num_classes: int | None = None  # default: the number in files, or the largest label plus one
    validation_fraction: float | None = None  # of what is left for training, for validation

    def __post_init__(self) -> None:
        check_fractions(self.validation_fraction, self.test_fraction)
        check_least(self, 1, "num_classes")

    def build(self, seed: int, sources: Sources) -> Federation:  # noqa: ARG002
        return read_clients(
            whole_path(self.path),
            self.num_classes,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )

    def over_time(
        self,
        seed: int,  # noqa: ARG002
        sources: Sources,  # noqa: ARG002
        steps: int | None,
        schedule: Planned,
    ) -> Federation:
        """Build the federation with a step for each subfolder, in the order of their names.

        A subfolder has the files of the clients that are there in its step, without test examples.
        Groups and attributes of single steps are not read.
        """
        check_unplanned(schedule, "each subfolder is a step")
        path = whole_path(self.path)
        folders = sorted(each for each in path.glob("*") if each.is_dir())
        expected = "a folder with two or more subfolders: one for each step, and one for the test"
        check(len(folders) >= 2, "path", str(path), expected)
        folders = folders[: None if steps is None else steps + 1]
        read = [read_clients(folder, self.num_classes) for folder in folders]
        for folder, each in zip(folders, read, strict=True):
            apart = len(each.test.x) + (each.validation is not None)
            expected = "allowed with time: clients are tested on their examples of the next step"
            check(not apart, str(folder), "a folder with test or validation examples", expected)
        made = Federation.over_time(
            ({name: each.train.of(n) for n, name in enumerate(each.names)} for each in read),
            num_classes=max(each.num_classes or 0 for each in read) or None,
        )
        return replace(made, encoding=read[0].encoding)


def read_clients(
    path: Path,
    num_classes: int | None,
    test_fraction: float = 0.0,
    validation_fraction: float = 0.0,
    seed: int = 0,
    drawn_by_name: bool = False,
    without: Collection[Path] = (),
) -> Federation:
    """The clients of a folder of `.npz` files, or of a single file. See `Folder`.

    Clients whose files are in `without` are left out.

    Test examples that are `drawn_by_name`, and the numbers of groups that are words, do not depend
    on the other clients, who may be in other folders.
    """
    there = _files(path)
    kept = [n for n, file in enumerate(there) if file not in without]
    everyone, files = [file.stem for file in there], [there[n] for n in kept]
    loaded = [_load(file) for file in files]
    names = [file.stem for file in files]
    train = [(arrays["x"], arrays["y"]) for arrays in loaded]
    test, validation = (_pairs(path, names, loaded, split) for split in ("test", "validation"))
    groups = None if path.is_file() else read_groups(path / GROUPS, everyone, drawn_by_name)
    attributes = {} if path.is_file() else read_attributes(path, tuple(everyone))
    # Invalid examples are reported, as always, when the federation is made.
    if drawn_by_name and test is None and all(x.shape[:1] == y.shape[:1] != () for x, y in train):
        rngs = by_name(seed, Stream.DATA, names)
        train, test = set_apart(train, names, test_fraction, "test_fraction", rngs)
    federation = Federation.from_arrays(
        train,
        test,
        validation=validation,
        names=names,
        groups=None if groups is None else [groups[n] for n in kept],
        attributes={name: [values[n] for n in kept] for name, values in attributes.items()},
        num_classes=_classes(files, loaded) if num_classes is None else num_classes,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        seed=seed,
    )
    return replace(federation, encoding=_scale(files, loaded))


def unreadable(path: Path, num_classes: int | None) -> dict[Path, str]:
    """The files of a folder that hold no client's examples, each with the reason."""
    found = {}
    for file in _files(path):
        try:
            read_clients(file, num_classes)
        except UsageError as error:
            found[file] = str(error)
    return found


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


def _files(path: Path) -> list[Path]:
    """The files of the clients, one each."""
    if not path.exists():
        raise UsageError(f"{path}: there is no such folder or file")
    return [path] if path.is_file() else client_files(path)


def _load(file: Path, needed: Sequence[str] = ("x", "y")) -> dict[str, NDArray[Any]]:
    found = read_arrays(file, KNOWN_ARRAYS)
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
