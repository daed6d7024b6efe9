"""The clients' examples, stored contiguously, and the planted groups if they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from umbel.checks import check, check_memory
from umbel.client.objectives import BINARY, Objective
from umbel.data.dataframes import check_columns, check_rows
from umbel.data.datasets import Dataset, arrays_of
from umbel.data.form import Form
from umbel.data.given import in_order, listed, pair
from umbel.data.labels import check_labels, check_no_indicators
from umbel.data.values import inputs, targets
from umbel.notebooks import cut
from umbel.seeds import Stream, generator
from umbel.summary import counted, in_short

Examples: TypeAlias = "tuple[ArrayLike | Tensor | Any, ArrayLike | Tensor | Any]"
"""One client's inputs (n, ...) and targets (n, ...): arrays, tensors, lists, tables of pandas."""

Clients: TypeAlias = "Sequence[Examples] | Mapping[str, Examples]"
"""The examples of each client, in a list or by name."""


@dataclass(frozen=True)
class Split:
    """Examples of all clients, one client after another."""

    x: Tensor  # (total, ...)
    y: Tensor  # (total, ...)
    offsets: NDArray[np.int64]  # (M + 1,) client c holds rows offsets[c] to offsets[c + 1]

    __repr__ = in_short

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(M,) number of examples of each client."""
        return np.diff(self.offsets)

    def of(self, client: int) -> tuple[Tensor, Tensor]:
        """One client's examples, as views."""
        rows = slice(int(self.offsets[client]), int(self.offsets[client + 1]))
        return self.x[rows], self.y[rows]


@dataclass(frozen=True)
class Federation:
    """The clients' examples: M clients with training and test examples each.

    `Federation.from_arrays` makes one of your own data, `scenario` one of a recipe. `groups` is the
    planted truth, for scoring only: no method is shown a federation.
    """

    train: Split  #: training examples, client after client
    test: Split  #: test examples, likewise
    _: KW_ONLY
    groups: NDArray[np.int64] | None = None  #: (M,) planted group of each client, None if unknown
    num_classes: int | None = None  #: number of labels; None: regression
    names: tuple[str, ...] = ()  #: the clients' names

    def __repr__(self) -> str:
        train, test = int(self.train.sizes.sum()), int(self.test.sizes.sum())
        parts = [counted(self.num_clients, "client")]
        parts.append(f"{train:,} training and {counted(test, 'test example')}")
        parts.append(f"inputs {self.input_shape}")
        shape = tuple(self.train.y.shape[1:])
        if self.num_classes is None:
            parts.append(f"regression of {shape} values" if shape else "regression of one value")
        else:
            labels = f" for each of {shape}" if shape else ""
            parts.append(f"{self.num_classes} classes{labels}")
        if self.groups is not None:
            parts.append(counted(len(np.unique(self.groups)), "planted group"))
        return f"Federation: {', '.join(parts)}"

    def _repr_html_(self) -> str:
        columns = [self.names, map(str, self.train.sizes), map(str, self.test.sizes)]
        columns += [] if self.groups is None else [map(str, self.groups)]
        heads = ("client", "training examples", "test examples", "planted group")[: len(columns)]
        rows = list(zip(*columns, strict=True))
        return cut(heads, rows, repr(self), "clients")._repr_html_()

    @property
    def num_clients(self) -> int:
        """M, the number of clients."""
        return len(self.train.sizes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example's input."""
        return tuple(self.train.x.shape[1:])

    @property
    def num_outputs(self) -> int:
        """How many outputs a model for these clients has."""
        return self.form().num_outputs

    @property
    def objective(self) -> Objective:
        """What models of these clients are trained for."""
        return self.form().objective()

    def form(self, objective: Objective | None = None) -> Form:
        """What a model for these clients fits, given what it is trained for."""
        classes = None if objective == BINARY else self.num_classes
        return Form(
            input_shape=self.input_shape,
            num_outputs=classes or int(self.train.y[0].numel()),
            num_classes=self.num_classes,
        )

    def pick(self, clients: Sequence[int]) -> Federation:
        """Make a federation of these clients only, in this order, under their names."""
        return Federation(
            _joined([self.train.of(client) for client in clients]),
            _joined([self.test.of(client) for client in clients]),
            groups=None if self.groups is None else self.groups[list(clients)],
            num_classes=self.num_classes,
            names=tuple(self.names[client] for client in clients),
        )

    def save(self, folder: Path | str) -> None:
        """Write each client's examples to a file `NAME.npz` of a folder, as the command line takes.

        The scenario `folder` reads them back. Raises `UsageError` for a client whose name can't be
        that of a file, and for a folder that holds clients already.
        """
        from umbel.data.scenarios.folder import write_clients

        write_clients(self, Path(folder))

    @classmethod
    def from_arrays(
        cls,
        train: Clients,
        test: Clients | None = None,
        *,
        groups: Sequence[int | str] | Mapping[str, int | str] | None = None,
        names: Sequence[str] | None = None,
        num_classes: int | None = None,
        test_fraction: float = 0.15,
        seed: int = 0,
    ) -> Federation:
        """Make a federation of arrays, tensors, lists or pandas tables, one pair (x, y) a client.

        >>> import numpy as np
        >>> clients = {name: (np.zeros((20, 5)), np.arange(20) % 2) for name in ("Ava", "Ben")}
        >>> umbel.Federation.from_arrays(clients)
        Federation: 2 clients, 34 training and 6 test examples, inputs (5,), 2 classes

        Integer y are class labels, floating-point y are regression targets. Inputs of type uint8
        or bool become floats, and so do tables; wider integers stay integers, as embeddings need.
        Clients are named by `names`, or by the keys where they come as a mapping; `test` and
        `groups`, numbers or words, may be mappings, too. Without `test`, a random `test_fraction`
        of each client's examples is set apart. `num_classes` is the largest label plus one unless
        given. Where an example has many labels, those of -100 do not count. Raises `ValueError`
        for a client without training examples, for what are no finite numbers, for inputs or
        columns that differ between clients, for one-hot labels, and for labels out of range;
        messages do not show examples.
        """
        clients, names = listed(train, "train", names)
        pairs = [pair(entry, name) for entry, name in zip(clients, names, strict=True)]
        apart = [] if test is None else in_order(test, "test", names)
        all_pairs, all_names = pairs + apart, names + names * (test is not None)
        check_columns([x for x, _ in all_pairs], all_names)
        tensors = [_tensors(x, y, n) for (x, y), n in zip(all_pairs, all_names, strict=True)]
        shards, held_out = tensors[: len(pairs)], tensors[len(pairs) :]
        if test is None:
            check(0 <= test_fraction < 1, "test_fraction", test_fraction, "in [0, 1)")
            parts = [
                _held_out(x, y, test_fraction, generator(seed, Stream.DATA, client), name)
                for client, ((x, y), name) in enumerate(zip(shards, names, strict=True))
            ]
            shards, held_out = [p[0] for p in parts], [p[1] for p in parts]
        _check_alike(shards + held_out, names * 2)
        for (x, _), name in zip(shards, names, strict=True):
            check(len(x) > 0, f"client {name}", len(x), "a positive number of training examples")
        check_no_indicators([y for _, y in shards], num_classes)
        labels = not shards[0][1].is_floating_point()
        if labels:
            num_classes = check_labels(shards + held_out, names * 2, num_classes)
        else:
            expected = f"labels of {num_classes} classes, which are whole numbers"
            check(num_classes is None, f"client {names[0]}: y", "floating-point numbers", expected)
        return cls(
            _joined(shards),
            _joined(held_out),
            groups=None if groups is None else _numbers_of(in_order(groups, "groups", names)),
            num_classes=num_classes,
            names=names,
        )

    @classmethod
    def from_datasets(
        cls,
        train: Sequence[Dataset] | Mapping[str, Dataset],
        test: Sequence[Dataset] | Mapping[str, Dataset] | None = None,
        *,
        columns: tuple[str, str] = ("x", "y"),
        groups: Sequence[int | str] | Mapping[str, int | str] | None = None,
        names: Sequence[str] | None = None,
        num_classes: int | None = None,
        test_fraction: float = 0.15,
        seed: int = 0,
    ) -> Federation:
        """Make a federation of map-style datasets of `torch` or of Hugging Face, one a client.

        Their examples are pairs (x, y), or have names, of which `columns` are the inputs' and the
        targets'. Each dataset is read once, here. Otherwise as `from_arrays`.
        """
        clients, names = listed(train, "train", names)
        apart = [] if test is None else in_order(test, "test", names)
        read = [arrays_of(each, name, columns) for each, name in zip(clients, names, strict=True)]
        held = [arrays_of(each, name, columns) for each, name in zip(apart, names, strict=False)]
        return cls.from_arrays(
            read,
            None if test is None else held,
            groups=groups,
            names=names,
            num_classes=num_classes,
            test_fraction=test_fraction,
            seed=seed,
        )


def _numbers_of(groups: Sequence[int | str]) -> NDArray[np.int64]:
    """Numbers as they are, words numbered in their order."""
    numbers = np.asarray(groups)
    if numbers.dtype.kind not in "iu":
        numbers = np.unique(numbers.astype(str), return_inverse=True)[1]
    return numbers.astype(np.int64)


def _tensors(x: object, y: object, name: str) -> tuple[Tensor, Tensor]:
    check_rows(x, y, name)
    tensors = inputs(x, name), targets(y, name)
    shapes = [tuple(tensor.shape) for tensor in tensors]
    same = all(shapes) and shapes[0][0] == shapes[1][0]
    said = f"{shapes[0]} inputs and {shapes[1]} targets"
    check(same, f"client {name}", said, "as many inputs as targets")
    values = tensors[0].numel() > 0 and tensors[1].numel() > 0
    check(values or not shapes[0][0], f"client {name}", said, "a number or more for each example")
    return tensors


def _held_out(
    x: Tensor, y: Tensor, fraction: float, rng: np.random.Generator, name: str
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    order = torch.from_numpy(rng.permutation(len(x)))
    cut = len(x) - round(fraction * len(x))
    expected = f"low enough: of the {len(x)} examples of client {name} none is left for training"
    check(cut > 0 or not len(x), "test_fraction", fraction, expected)
    return (x[order[:cut]], y[order[:cut]]), (x[order[cut:]], y[order[cut:]])


def _check_alike(shards: Sequence[tuple[Tensor, Tensor]], names: Sequence[str]) -> None:
    """Every client's examples must have the shapes and kinds of the first client's."""

    def kind(shard: tuple[Tensor, Tensor]) -> str:
        x, y = shard
        what = "numbers" if y.is_floating_point() else "labels"
        return f"inputs of shape {tuple(x.shape[1:])} with {what} of shape {tuple(y.shape[1:])}"

    wanted = kind(shards[0])
    expected = f"{wanted}, as others; if these are sequences, pad all clients' to one length"
    for shard, name in zip(shards, names, strict=True):
        if len(shard[0]):
            check(kind(shard) == wanted, f"client {name}", kind(shard), expected)


def _joined(shards: Sequence[tuple[Tensor, Tensor]]) -> Split:
    check_memory(sum(x.nbytes + y.nbytes for x, y in shards), "examples of all clients, joined")
    filled = [shard for shard in shards if len(shard[0])] or [shards[0]]
    sizes = [len(x) for x, _ in shards]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Split(torch.cat([x for x, _ in filled]), torch.cat([y for _, y in filled]), offsets)
