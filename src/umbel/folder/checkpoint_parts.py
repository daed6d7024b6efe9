"""Large tensors beside a checkpoint, each in a file that is named by its digest.

A round may replace only one tensor of a tuple, such as CFL-GP's features for one of K models. The
other tensors are on disk already and are not written again.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from torch import Tensor
from xxhash import xxh3_128

from umbel.checks import UsageError
from umbel.client.constants import bits, written_out
from umbel.engines.alignment import aligned
from umbel.files.atomic import PARTIAL, remove_partial
from umbel.folder.tensor_files import reading, write_plain
from umbel.summary import in_short

LARGE_BYTES = 2**20
"""Smallest tensor of a tuple that gets a file of its own, in bytes; for others it costs more."""

OURS = ("*.safetensors", PARTIAL)
"""File name patterns: parts, and partly written parts."""


@dataclass(frozen=True)
class Part:
    """A tensor that was written, held by a weak reference.

    Changes through NumPy are not noticed: the whole tensor would have to be read in every round.
    """

    tensor: weakref.ref[Tensor]
    version: int  # torch's counter of changes in place
    digest: str

    __repr__ = in_short

    @classmethod
    def of(cls, tensor: Tensor) -> Part:
        return cls(weakref.ref(tensor), _version(tensor), _digest(tensor))

    def holds(self, tensor: Tensor) -> bool:
        """Return True if the part is this tensor, unchanged since it was written."""
        counted = not tensor.is_inference()
        return counted and self.tensor() is tensor and _version(tensor) == self.version


Parts = Mapping[str, Part]
"""The parts that a session has written, by the names of their tensors."""

NO_PARTS: Parts = MappingProxyType({})


def place(checkpoint: Path) -> Path:
    """The folder of a checkpoint's parts."""
    return checkpoint.with_name(f"{checkpoint.stem}-parts")


def are_parts(values: Mapping[str, object]) -> Iterator[tuple[str, Tensor]]:
    """Yield the large tensors among those in tuples."""
    for name, value in values.items():
        if is_entry(name) and isinstance(value, Tensor) and value.nbytes >= LARGE_BYTES:
            yield name, value


def is_entry(name: str) -> bool:
    """Return True for the name of a tensor in a tuple, such as "features.0"."""
    return name.rpartition(".")[2].isdecimal()


def write(folder: Path, tensors: Mapping[str, Tensor], before: Parts) -> Parts:
    """Write each of these tensors into the folder, except those of `before`, which are there."""
    parts = {}
    for name, tensor in tensors.items():
        there = before.get(name)
        if there is not None and there.holds(tensor):
            parts[name] = there
            continue
        parts[name] = Part.of(tensor)
        folder.mkdir(exist_ok=True)
        write_plain(_file(folder, parts[name].digest), {"values": written_out(tensor)})
    return parts


def remove_others(folder: Path, digests: Iterable[str]) -> None:
    """Remove files that are not, or no longer, part of the checkpoint."""
    needed = {_file(folder, digest) for digest in digests}
    for file in [file for pattern in OURS for file in folder.glob(pattern)]:
        if file not in needed:
            remove_partial(file)
    if not needed and folder.is_dir():
        with suppress(OSError):  # other programs' files stay
            folder.rmdir()


def read(folder: Path, digests: Mapping[str, str], otherwise: str) -> dict[str, Tensor]:
    """The tensors of these digests, by name. Raises `UsageError` if a file does not match."""
    tensors = {}
    for name, digest in digests.items():
        if not (isinstance(digest, str) and re.fullmatch("[0-9a-f]+", digest)):
            raise UsageError(f"{folder}: {otherwise}: {digest!r} is not the name of a part")
        file = _file(folder, digest)
        with reading(file, otherwise, sealed=False) as (opened, _):
            tensors[name] = aligned(opened.get_tensor("values"))
        # The name is the seal: parts have no other.
        if digest != _digest(tensors[name]):
            raise UsageError(f"{file}: {otherwise}: its contents do not match its name")
    return tensors


def _version(tensor: Tensor) -> int:
    """Return the number of changes in place, which torch counts outside of inference mode."""
    return 0 if tensor.is_inference() else tensor._version


def _digest(tensor: Tensor) -> str:
    """The name of a part: XXH3 of its type, shape and values."""
    total = xxh3_128(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
    total.update(bits(tensor).numpy().data)
    return total.hexdigest()


def _file(folder: Path, digest: str) -> Path:
    return folder / f"{digest}.safetensors"
