"""Evidence: the values on which a method's clusters rest, by round, in a bounded number of files.

Rounds are kept at regular distances, which double as the run grows. The last few rounds in which
the number of models changed are kept, too: in these, clients were clustered, separated or split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.algorithms.base import Algorithm, State
from umbel.checks import UsageError
from umbel.client.constants import written_out
from umbel.files.atomic import remove_partial
from umbel.folder.tensor_files import reading, tensors_in, write
from umbel.run.rounds import sample
from umbel.summary import in_short

REGULAR, TURNS = 14, 5
"""Largest numbers of files kept: at regular distances, and of rounds in which models changed.

Round 0 is kept in addition. The round before a change and the last round count as changes.
"""


SHAPES: Mapping[str, str] = {
    **dict.fromkeys(("similarity", "distance"), "NN"),
    **dict.fromkeys(("losses", "scores", "weights"), "NK"),
    "features": "ND",
    "singular_values": "R",
}
"""A letter a dimension, by the names of `Algorithm.evidence`; N clients."""

FORM = (
    "not floating-point values of the shapes that Algorithm.evidence states, with the numbers "
    "of their clients, int64, as `clients`"
)

HOW_TO_REPAIR = "; remove it: it is not needed"


@dataclass(frozen=True)
class Snapshot:
    """The evidence after one round, by the names of `Algorithm.evidence`."""

    round: int
    tensors: Mapping[str, Tensor]

    __repr__ = in_short


@dataclass(frozen=True)
class EvidenceFolder:
    """The files `round-00012.safetensors` of one run."""

    path: Path

    def note(
        self,
        algorithm: Algorithm[Any],
        before: State,
        after: State,
        number: int,
        is_last: bool,
        clients: Callable[[int], NDArray[np.int64]] | None = None,
    ) -> None:
        """Write the evidence of a round between two states, if the round is to be kept.

        `clients` gives the numbers of clients in the state after a round; by default its rows.
        """

        def found(state: State, number: int) -> Mapping[str, Tensor]:
            tensors = evidence_of(algorithm, state)
            if clients is None or "clients" not in tensors:
                return tensors
            return {**tensors, "clients": torch.from_numpy(clients(number))[tensors["clients"]]}

        turn = len(before.models) != len(after.models)
        due = (number + 1) % spacing(number + 1) == 0
        if turn and number:
            # Methods that cluster only once may drop the evidence afterwards.
            self._save(number - 1, found(before, number - 1), apart=True)
        if turn or due or is_last:
            self._save(number, found(after, number), apart=turn or is_last)
            self._thin(number + 1)

    def go_on(self, last: int, turn: bool) -> None:
        """Keep the file of the former last round only if an ordinary round would have one.

        `turn` says whether the number of models changed in it. A damaged file is not kept.
        """
        file = self._file(last)
        if turn or not file.is_file():
            return
        seen = None
        if (last + 1) % spacing(last + 1) == 0:
            with suppress(UsageError):
                seen = _opened(file)[0]
        if seen is None:
            file.unlink()
        else:
            self._save(last, seen, apart=False)

    def cut(self, next_round: int) -> None:
        """Remove files of rounds to be done again, and incomplete files of a killed process."""
        kept = {file for number, file in self._files() if number < next_round}
        for file in self.path.glob("*"):
            if file not in kept:
                remove_partial(file)

    def read(self) -> list[Snapshot]:
        """Read all files in order of rounds. Raises `UsageError` for a damaged file."""
        found = []
        for number, file in self._files():
            tensors = _opened(file)[0]
            if not fits(tensors):
                raise UsageError(f"{file}: damaged: not evidence of a method{HOW_TO_REPAIR}")
            found.append(Snapshot(number, tensors))
        return found

    def _save(self, number: int, tensors: Mapping[str, Tensor], apart: bool) -> None:
        if not tensors:
            return
        self.path.mkdir(exist_ok=True)
        # A clone each: safetensors refuses tensors that share their memory.
        values = {name: written_out(tensor).clone() for name, tensor in tensors.items()}
        write(self._file(number), values, {"apart": apart})

    def _thin(self, done: int) -> None:
        """Remove the files that need not be kept after this number of rounds."""
        # With a spacing of 4, rounds 0, 3, 7, 11, ...: each spacing keeps a part of the one before.
        regular = {n for n, _ in self._files() if n == 0 or (n + 1) % spacing(done) == 0}
        # Only the last few rounds around changes stay: frequent splits would fill the disk.
        apart = [n for n, file in self._files() if n not in regular and _opened(file)[1]]
        kept = regular | set(apart[-TURNS:])
        for number, file in self._files():
            if number not in kept:
                file.unlink()

    def _file(self, number: int) -> Path:
        return self.path / f"round-{number:05}.safetensors"

    def _files(self) -> Iterator[tuple[int, Path]]:
        """The files by their rounds, in order."""
        files = [(f.stem.removeprefix("round-"), f) for f in self.path.glob("round-*.safetensors")]
        yield from sorted((int(number), file) for number, file in files if number.isdecimal())


def evidence_of(algorithm: Algorithm[Any], state: State) -> Mapping[str, Tensor]:
    """Return the evidence of a method. Raises `UsageError` unless it has the right form."""
    tensors = algorithm.evidence(state, sample)
    known = isinstance(tensors, Mapping) and all(isinstance(t, Tensor) for t in tensors.values())
    if not known:
        raise UsageError(f"what evidence returns: {type(tensors).__name__}: not tensors by name")
    if not fits(tensors):
        kinds = {name: f"{each.dtype} {tuple(each.shape)}" for name, each in tensors.items()}
        raise UsageError(f"what evidence returns: {kinds}: {FORM}")
    return tensors


def spacing(done: int) -> int:
    """Return the smallest power of two that keeps at most `REGULAR` of these rounds."""
    every = 1
    while done // every > REGULAR:
        every *= 2
    return every


def _opened(file: Path) -> tuple[dict[str, Tensor], bool]:
    """The tensors of a file, and whether it is kept apart from the spacing."""
    with reading(file, "damaged", HOW_TO_REPAIR) as (opened, header):
        return tensors_in(opened), bool(header["apart"])


def fits(tensors: Mapping[str, Tensor]) -> bool:
    """Return True if tensors with the names of `Algorithm.evidence` have the right shapes."""
    known = SHAPES.keys() & tensors.keys()
    clients = tensors.get("clients", torch.empty(0))
    if not known:
        return True
    fine = clients.dtype == torch.long and clients.dim() == 1 and bool((clients >= 0).all())
    lengths = {"N": len(clients) if clients.dim() else -1}
    for name in known:
        tensor, shape = tensors[name], SHAPES[name]
        wanted = tuple(
            lengths.get(letter, size) for letter, size in zip(shape, tensor.shape, strict=False)
        )
        fine &= tensor.is_floating_point() and len(shape) == tensor.dim()
        fine &= wanted == tuple(tensor.shape)
    return fine
