"""Data sets by name: scikit-learn's digits, or image data sets in the form of the hub.

Data sets of the Hugging Face hub are read from a data directory that the user names, with a folder
for each data set and a Parquet file for each split (`mnist/train.parquet`), or else from the hub
itself; `femnist` also from the files of LEAF, in its `train` and `test`. They are decoded once, and
saved as arrays in the cache directory.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
from filelock import FileLock

from umbel.checks import UsageError, check, first_line
from umbel.data.arrays import Arrays
from umbel.data.cache import (
    PARTIAL,
    cache_directory,
    cached,
    naming_cache,
    remove_partial,
    save,
)
from umbel.data.hub import answers, offline
from umbel.data.leaf import Leaf, leaf_files
from umbel.data.pictures import decoded
from umbel.data.views import VIEWS
from umbel.settings import whole_path

log = logging.getLogger(__name__)

DATA_DIR_VARIABLE = "UMBEL_DATA_DIR"

DECODING = 3
"""Version of decoding: if it changes, all files are decoded again."""

HUB: Mapping[str, str] = {
    "mnist": "ylecun/mnist",
    "fashion_mnist": "zalando-datasets/fashion_mnist",
    "cifar10": "uoft-cs/cifar10",
    "emnist": "flwrlabs/femnist",  # the 62 classes of EMNIST, by writer
    "femnist": "flwrlabs/femnist",
}
"""Names on the hub of the data sets that don't need a data directory."""

ONE_SPLIT = ("emnist", "femnist")
"""Those of which the hub has all examples in one split."""


@dataclass(frozen=True)
class Sources:
    """The directories from which data sets are read, and in which decoded examples are cached.

    >>> umbel.Sources.default().load("digits").x.shape
    (1797, 1, 8, 8)
    """

    #: folder that contains a folder for each data set; None: read from the hub
    data_dir: Path | None
    cache_dir: Path | None  #: folder for decoded examples; None: see `default`

    @classmethod
    def default(cls, data_dir: Path | None = None) -> Sources:
        """Use the given directory, or the one in `UMBEL_DATA_DIR`, or the Hugging Face hub.

        Examples that have to be decoded are saved in `UMBEL_CACHE_DIR`, or in the user's cache
        directory. Raises `UsageError` if the data directory does not exist.
        """
        variable = os.environ.get(DATA_DIR_VARIABLE)
        named = data_dir or variable
        where = whole_path(named) if named else None
        origin = "--data-dir" if data_dir else DATA_DIR_VARIABLE
        check(where is None or where.is_dir(), origin, str(where), "an existing directory")
        return cls(where, None)

    def path(self, name: str) -> Path:
        """A file or folder in the data directory. Raises `UsageError` if it is missing."""
        if self.data_dir is None:
            raise UsageError(
                f"source: {name} is read from a data directory; set {DATA_DIR_VARIABLE} or "
                "--data-dir"
            )
        found = self.data_dir / name
        if not found.exists():
            raise UsageError(f"source: {name!r} is not in the data directory: there is no {found}")
        return found

    def load(self, name: str, split: str = "train", setting: str = "split") -> Arrays:
        """Load all examples of a split, or of several splits together, such as "train+test".

        `digits` has only one split, and needs neither files nor the internet; `emnist-merged` and
        `emnist-a-to-j` are views of `emnist`. Raises `UsageError`, with the name of the `setting`,
        if there is no such data set or split, or for a view of other classes.
        """
        if name in VIEWS:
            view = VIEWS[name]
            whole = self.load(view.source, split, setting)
            there, wanted = whole.num_classes, len(view.names)
            expected = f"made of {view.source} with {there} classes: it needs {wanted}"
            check(there == wanted, "source", name, expected)
            return whole.relabelled(view.names)
        names = split.split("+")
        check(len(set(names)) == len(names), setting, split, "made of different splits")
        if self.data_dir is None and name in ONE_SPLIT:
            expected = (
                f'"train" or "train+test": on the hub, {name} has one split, with all examples'
            )
            check("train" in names, setting, split, expected)
            names = ["train"]
        parts = [self._split(name, part, setting) for part in names]
        return parts[0] if len(parts) == 1 else _together(parts, split, setting)

    def divides(self, name: str) -> bool:
        """Whether a data set in the data directory has test examples of its own."""
        if self.data_dir is None or name in VIEWS:
            return False
        folder = self.data_dir / name
        leaf = leaf_files(folder, "test") if name == "femnist" else []
        return (folder / "test.parquet").is_file() or bool(leaf)

    def _split(self, name: str, split: str, setting: str) -> Arrays:
        if name == "digits":
            check(split == "train", setting, split, '"train", the only split of digits')
            return _digits()
        if self.data_dir is None:
            known = ", ".join(["digits", *HUB, *VIEWS])
            expected = f"any of {known}; for a data set of your own, set {DATA_DIR_VARIABLE}"
            check(name in HUB, "source", name, expected)
            return self._decoded(f"{name}-{split}-hub-{DECODING}", _Hub(HUB[name], split))
        file = self.data_dir / name / f"{split}.parquet"
        leaf = leaf_files(file.parent, split) if name == "femnist" else []
        if leaf and not file.is_file():
            return self._decoded(f"{name}-{split}-{_digest(leaf)}", Leaf(tuple(leaf)))
        expected = f"in the data directory: there is no file {file}"
        expected += ", and no .json files of LEAF beside it" * (name == "femnist")
        check(file.is_file(), "source", name, expected)
        return self._decoded(f"{name}-{split}-{_digest([file])}", _Parquet(file))

    def _decoded(self, key: str, origin: _Hub | _Parquet | Leaf) -> Arrays:
        folder = (self.cache_dir or cache_directory()) / key
        with naming_cache(folder.parent):
            there = folder.is_dir()
        if not there:  # else nothing is written, which may not be possible
            _decode(folder, origin)
        try:
            return cached(folder)
        except Exception as error:  # NumPy raises any exception for damaged files
            raise UsageError(f"{folder}: damaged; remove it to decode it again: {error}") from None


def _decode(folder: Path, origin: _Hub | _Parquet | Leaf) -> None:
    """Write this folder of the cache, unless another process does so first."""
    place = folder.parent
    with ExitStack() as stack:
        with naming_cache(place):
            place.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(place / f"{folder.name}.lock"))
        if folder.is_dir():
            return
        log.info("decoding %s into %s", origin, folder)
        with naming_cache(place):
            remove_partial(folder)
            temporary = tempfile.TemporaryDirectory(prefix=f"{folder.name}{PARTIAL}", dir=place)
        arrays = origin.arrays(stack.enter_context(temporary))
        save(arrays, folder)


def _digest(files: Sequence[Path]) -> str:
    """A key that changes with the files and with `DECODING`, the version of decoding."""
    states = [(file.resolve(), file.stat()) for file in files]
    key = " ".join(f"{path} {state.st_size} {state.st_mtime_ns}" for path, state in states)
    key += f" {DECODING}"
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _together(parts: Sequence[Arrays], split: str, setting: str) -> Arrays:
    for part in parts[1:]:
        parts[0].check_alike(part, setting, split)
    x, y = (np.concatenate(arrays) for arrays in zip(*((p.x, p.y) for p in parts), strict=True))
    owners = [part.owners for part in parts if part.owners is not None]
    whose = np.concatenate(owners) if len(owners) == len(parts) else None
    return Arrays(x, y, parts[0].num_classes, owners=whose, classes=parts[0].classes)


@dataclass(frozen=True)
class _Parquet:
    """A split in a Parquet file of the user."""

    file: Path

    def __str__(self) -> str:
        return str(self.file)

    def arrays(self, scratch: str) -> Arrays:
        """All examples; temporary files are written to the folder `scratch`."""
        files, datasets = {"examples": str(self.file)}, _datasets()
        try:
            rows = datasets.load_dataset(
                "parquet", data_files=files, split="examples", cache_dir=scratch
            )
            return decoded(rows)
        except UsageError as error:
            raise UsageError(f"{self.file}: {error}") from None
        except Exception as error:  # libraries for Parquet and images raise many types
            reason = " ".join(str(error.__cause__ or error).split())
            raise UsageError(f"{self.file}: can't be read as images in Parquet: {reason}") from None


@dataclass(frozen=True)
class _Hub:
    """A split on the hub."""

    name: str
    split: str

    def __str__(self) -> str:
        return f"the split {self.split!r} of {self.name!r}"

    def arrays(self, scratch: str) -> Arrays:  # noqa: ARG002
        """All examples; downloads stay in the hub's own cache."""
        datasets = _datasets()
        endpoint = datasets.config.HF_ENDPOINT
        silent = not datasets.config.HF_HUB_OFFLINE and not answers(endpoint)
        try:
            with offline(datasets) if silent else nullcontext():
                dataset = datasets.load_dataset(self.name, split=self.split)
        except Exception as error:
            if not isinstance(error, OSError | ValueError):  # offline, or the split is missing
                raise
            reason = f"{endpoint} does not answer" if silent else first_line(error)
            raise UsageError(
                f"source: the split {self.split!r} of {self.name!r} can't be read from the Hugging "
                f"Face hub ({reason}); with a copy on disk, set {DATA_DIR_VARIABLE}"
            ) from error
        return decoded(dataset)


def _datasets() -> ModuleType:
    try:
        import datasets  # an optional extra
        import PIL  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"source: reading image data sets needs the package {error.name!r}; "
            "install the extra with: pip install 'umbel[data]'"
        ) from error
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)  # umbel reports errors of reading itself, once
    module: ModuleType = datasets
    return module


@cache  # parsing its text takes longer than all further work
def _digits() -> Arrays:
    # The file that scikit-learn's load_digits reads: to import it takes longer than a short run.
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)  # 64 pixels from 0 to 16, the class
    return Arrays(table[:, :-1].reshape(-1, 1, 8, 8) / 16, table[:, -1].astype(np.int64), 10)
