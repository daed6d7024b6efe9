"""The clients' examples, stored contiguously, and the planted groups if they are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from umbel.checks import UsageError, check
from umbel.client.objectives import BINARY, Objective
from umbel.data.attributes import Attributes, Given, attributes_of, picked
from umbel.data.channel_scale import ChannelScale
from umbel.data.class_names import check_class_names
from umbel.data.client_files import ClientFiles, write_clients
from umbel.data.conventions import warn_of_numbering
from umbel.data.datasets import Dataset, own_splits, read_all
from umbel.data.examples import ChosenPair, examples_of, with_all_splits
from umbel.data.form import Form
from umbel.data.given import by_split, check_picked, in_order, listed
from umbel.data.groups import numbers_of
from umbel.data.labels import check_labels, check_trainable, fitting_classes
from umbel.data.splits import Chosen, Split, by_name, for_validation, joined, set_apart
from umbel.data.steps import as_concepts, pooled_steps
from umbel.data.tables.described import described
from umbel.data.tables.encoding import Encoding
from umbel.help.synonyms import Answered
from umbel.notebooks import cut
from umbel.seeds import Stream
from umbel.settings import argument, hinting
from umbel.summary import counted

Examples: TypeAlias = "tuple[ArrayLike | Tensor | Any, ArrayLike | Tensor | Any]"
"""One client's inputs (n, ...) and targets (n, ...): arrays, tensors, lists, tables of pandas."""

Clients: TypeAlias = "Sequence[Examples] | Mapping[str, Examples]"
"""The examples of each client, in a list or by name."""


@dataclass(frozen=True)
class Federation(Answered):
    """The clients' examples: M clients with training and test examples each.

    `Federation.from_arrays` makes one from your own data, `scenario` from a recipe. `groups` are
    the planted groups, used only to score clusters: methods never see a federation. With
    `validation` examples, rounds are evaluated on these, and test examples are used once, after the
    last round.
    """

    train: Split  #: training examples, client after client
    test: Split  #: test examples, client after client
    _: KW_ONLY
    validation: Split | None = None  #: validation examples, client after client; None: none
    groups: NDArray[np.int64] | None = None  #: (M,) planted group of each client, None if unknown
    num_classes: int | None = None  #: number of labels; None: regression
    names: tuple[str, ...] = ()  #: the clients' names
    #: known facts about the clients: attribute name -> one value for each client
    attributes: Attributes = field(default_factory=dict)
    #: (M, T) concept of each client in each step of time, None if unknown
    concepts: NDArray[np.int64] | None = None
    #: encoding of a table, or scale of channels, to apply to newcomers' data; None: neither
    encoding: Encoding | ChannelScale | None = None
    _hint: ClassVar[str] = "; write umbel.Federation.from_arrays(...)"

    def __repr__(self) -> str:
        train, test = int(self.train.sizes.sum()), int(self.test.sizes.sum())
        parts = [counted(self.num_clients, "client")]
        chosen_by = self.validation
        more = "" if chosen_by is None else f", {int(chosen_by.sizes.sum()):,} validation"
        parts.append(f"{train:,} training{more} and {counted(test, 'test example')}")
        parts.append(f"inputs {self.input_shape}")
        shape = tuple(self.train.y.shape[1:])
        if self.num_classes is None:
            parts.append(f"regression of {shape} values" if shape else "regression of one value")
        else:
            labels = f" for each of {shape}" if shape else ""
            parts.append(f"{self.num_classes} classes{labels}")
        if self.groups is not None:
            parts.append(counted(len(np.unique(self.groups)), "planted group"))
        if self.attributes:
            parts.append(f"known: {' and '.join(self.attributes)}")
        if self.num_steps is not None:
            parts.append(counted(self.num_steps, "step"))
        return f"Federation: {', '.join(parts)}"

    def __str__(self) -> str:
        if isinstance(self.encoding, Encoding):
            return f"{self!r}\n{described(self.encoding)}"
        return repr(self)

    def _repr_html_(self) -> str:
        columns: dict[str, Iterable[str]] = {"client": self.names}
        columns["training examples"] = map(str, self.train.sizes)
        if self.validation is not None:
            columns["validation examples"] = map(str, self.validation.sizes)
        columns["test examples"] = map(str, self.test.sizes)
        if self.groups is not None:
            columns["planted group"] = map(str, self.groups)
        columns |= self.attributes
        rows = list(zip(*columns.values(), strict=True))
        return cut(tuple(columns), rows, repr(self), "clients")._repr_html_()

    @property
    def num_clients(self) -> int:
        """M, the number of clients."""
        return len(self.train.sizes)

    @property
    def splits(self) -> tuple[Split, ...]:
        """All splits: training, test, and validation if there is one."""
        always = (self.train, self.test)
        return always if self.validation is None else (*always, self.validation)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example's input."""
        return tuple(self.train.x.shape[1:])

    @property
    def num_outputs(self) -> int:
        """The number of outputs of a model for these clients."""
        return self.form().num_outputs

    @property
    def objective(self) -> Objective:
        """The objective for models of these clients: classification or regression."""
        return self.form().objective()

    @property
    def num_steps(self) -> int | None:
        """The steps of time in which clients train; None: examples have no time.

        Models are tested on the examples of the step that follows: the last one is for that alone.
        """
        return None if self.train.steps is None else self.train.steps.shape[1] - 1

    def at(self, step: int, first: int = 0) -> Federation:
        """The federation at a step: training examples of the steps from `first` to this one.

        Test examples are those of the next step, and groups the concepts of this one. Raises
        `UsageError` for a step that there is not.
        """
        expected = "with time: make it by Federation.over_time or a [time] of its scenario"
        check(self.num_steps is not None, "federation", "without steps", expected)
        last = (self.num_steps or 0) - 1
        check(0 <= step <= last, "step", step, f"in 0 to {last}")
        check(0 <= first <= step, "first", first, f"in 0 to {step}")
        everyone = np.arange(self.num_clients)

        def taken(split: Split, start: int, end: int) -> Split:
            steps = np.arange(last + 2)
            shares = ((start <= steps) & (steps < end)).astype(np.float64)
            return split.during(everyone, np.tile(shares, (len(everyone), 1)))

        return replace(
            self,
            train=taken(self.train, first, step + 1),
            test=taken(self.test, step + 1, step + 2),
            groups=self.groups if self.concepts is None else self.concepts[:, step],
            concepts=None,
        )

    def form(self, objective: Objective | None = None) -> Form:
        """The form of examples that a model for these clients and this objective fits."""
        classes = None if objective == BINARY else self.num_classes
        return Form(
            input_shape=self.input_shape,
            num_outputs=classes or int(self.train.y[0].numel()),
            num_classes=self.num_classes,
        )

    def with_validation(self, fraction: float, seed: int = 0) -> Federation:
        """The same with a random fraction of each client's training examples for validation.

        Which examples they are depends on a client's name and the seed, not on the other clients.
        Raises `UsageError` if a client would have no training examples left, or if there are
        validation examples already.
        """
        fraction = argument("fraction", fraction, float)
        _check_seed(seed)
        if self.validation is not None:
            raise UsageError("federation: has validation examples already")
        every = map(self.train.of, range(self.num_clients))
        train = [(Chosen.all_of(x, x.dtype), y) for x, y in every]
        rngs = by_name(seed, Stream.VALIDATION, self.names)
        left, apart = set_apart(train, self.names, fraction, "validation_fraction", rngs)
        validation = _validation(apart, self.names, fraction)
        return replace(self, train=joined(left), validation=validation)

    def pick(self, clients: Iterable[int]) -> Federation:
        """Make a federation of these clients only, in this order, under their names.

        Raises `UsageError` if `clients` is empty, names a client twice, or names an unknown client.
        """
        clients = list(clients)
        check_picked(clients, self.num_clients)
        validation = None if self.validation is None else self.validation.pick(clients)
        return Federation(
            self.train.pick(clients),
            self.test.pick(clients),
            validation=validation if validation is not None and len(validation.x) else None,
            groups=None if self.groups is None else self.groups[clients],
            concepts=None if self.concepts is None else self.concepts[clients],
            num_classes=self.num_classes,
            names=tuple(self.names[client] for client in clients),
            attributes=picked(self.attributes, clients),
            encoding=self.encoding,
        )

    def save(self, folder: Path | str) -> None:
        """Write each client's examples to a file `NAME.npz` in a folder, for the command line.

        The scenario `folder` reads these files. Raises `UsageError` if a client's name can't be a
        file name, and if the folder holds other clients already, or another `groups.csv` or
        `attributes.csv` than these clients have.
        """
        scale = self.encoding if isinstance(self.encoding, ChannelScale) else None
        known = self.groups, self.num_classes, self.attributes, scale
        write_clients(ClientFiles(self.names, self.splits, *known), Path(folder))

    @classmethod
    @hinting
    def from_arrays(
        cls,
        train: Clients,
        test: Clients | None = None,
        *,
        validation: Clients | None = None,
        groups: Sequence[int | str] | Mapping[str, int | str] | None = None,
        attributes: Given | None = None,
        names: Sequence[str] | None = None,
        num_classes: int | None = None,
        test_fraction: float = 0.15,
        validation_fraction: float = 0.0,
        seed: int = 0,
    ) -> Federation:
        """Make a federation of arrays, tensors, lists or pandas tables, one pair (x, y) per client.

        >>> import numpy as np
        >>> clients = {name: (np.zeros((20, 5)), np.arange(20) % 2) for name in ("Ava", "Ben")}
        >>> umbel.Federation.from_arrays(clients)
        Federation: 2 clients, 34 training and 6 test examples, inputs (5,), 2 classes

        Integer y are class labels, floating-point y are regression targets. Inputs of type uint8 or
        bool, and tables, become floats; wider integers stay integers, as embeddings need, if all
        clients and splits have them. Clients are named by `names`, or by the keys of a mapping;
        `test`, `validation` and `groups`, numbers or words, may be mappings, too. Without `test`, a
        random `test_fraction` of each client's examples is set apart; without `validation`, a
        random `validation_fraction` of the remaining training examples, by default none.
        `num_classes` is the largest label plus one unless given. If examples have many labels,
        labels of -100 do not count. `attributes` are other known facts about clients, such as
        {"airport": ["EWR", "JFK"]}. Raises `UsageError` for a client without training examples, for
        values that are not finite numbers, for inputs or columns that differ between clients, and
        for labels out of range. Messages do not show examples.
        """
        fractions = _fractions(test=test_fraction, validation=validation_fraction)
        num_classes = fitting_classes(num_classes)
        _check_seed(seed)
        clients, names = listed(train, names)
        fine = validation is None or not validation_fraction
        expected = "0, as validation examples are given"
        check(fine, "validation_fraction", validation_fraction, expected)
        given = by_split(clients, names, validation=validation, test=test)
        splits = with_all_splits(examples_of(given, names), names, fractions, seed)
        shards = splits["train"]
        everything, whose = [p for each in splits.values() for p in each], names * len(splits)
        check_trainable(shards, names)
        if not shards[0][1].is_floating_point():
            num_classes = check_labels(everything, whose, num_classes)
            warn_of_numbering(everything, whose)
        else:
            expected = f"labels of {num_classes} classes, which are whole numbers"
            check(num_classes is None, f"client {names[0]}: y", "floating-point numbers", expected)
        return cls(
            joined(shards),
            joined(splits["test"]),
            validation=_validation(splits.get("validation"), names, validation_fraction),
            groups=None if groups is None else numbers_of(in_order(groups, "groups", names), names),
            num_classes=num_classes,
            names=names,
            attributes=attributes_of(attributes, names),
        )

    @classmethod
    @hinting
    def over_time(
        cls,
        steps: Iterable[Clients],
        *,
        concepts: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        attributes: Given | None = None,
        num_classes: int | None = None,
    ) -> Federation:
        """Make a federation of the examples that clients get step by step, as pairs (x, y).

        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> steps = [{"Ava": (rng.random((20, 5)), np.arange(20) % 2)} for _ in range(3)]
        >>> umbel.Federation.over_time(steps).at(1).train.sizes
        array([40])

        Each of T steps is as `train` in `from_arrays`. A client that is missing in one has no
        examples in it: it may come later, or leave. Clients train in all steps but the last, and
        are tested on the step that follows. `concepts` (M, T) are what is planted: the number of
        each client's concept in each step. Raises `UsageError` as `from_arrays` does, for fewer
        than two steps, and if concepts are not (M, T) whole numbers.
        """
        pooled, sizes = pooled_steps(steps, names)
        first = {name: (x[:1], y[:1]) for name, (x, y) in pooled.items()}
        made = cls.from_arrays(pooled, first, attributes=attributes, num_classes=num_classes)
        train = replace(made.train, steps=sizes)
        planted = None if concepts is None else as_concepts(concepts, sizes.shape)
        groups = None if planted is None else planted[:, -2]
        return replace(made, train=train, test=train, groups=groups, concepts=planted)

    @classmethod
    @hinting
    def from_datasets(
        cls,
        train: Sequence[Dataset | Any] | Mapping[str, Dataset | Any],
        test: Sequence[Dataset] | Mapping[str, Dataset] | None = None,
        *,
        validation: Sequence[Dataset] | Mapping[str, Dataset] | None = None,
        columns: tuple[str, str] = ("x", "y"),
        groups: Sequence[int | str] | Mapping[str, int | str] | None = None,
        attributes: Given | None = None,
        names: Sequence[str] | None = None,
        num_classes: int | None = None,
        test_fraction: float = 0.15,
        validation_fraction: float = 0.0,
        seed: int = 0,
    ) -> Federation:
        """Make a federation of map-style datasets of `torch` or Hugging Face, one per client.

        Examples are pairs (x, y), or mappings with the names of inputs and targets in `columns`.
        Each dataset is read once, here: a warning names those whose examples a random transform
        changes. A client's entry in `train` may have all its splits, by name as in
        `{"train": ..., "test": ...}`, or as `(training, test)`. Names of classes that datasets have
        are compared. All else is as in `from_arrays`.
        """
        clients, names = listed(train, names)
        own = own_splits(clients, names)
        for what, others in (("test", test), ("validation", validation)):
            fine = what not in own or others is None
            check(fine, what, "given twice", f"given once: the entries of train have {what}, too")
        clients, test = own["train"], own.get("test", test)
        validation = own.get("validation", validation)
        splits = by_split(clients, names, validation=validation, test=test)
        read = read_all(splits, names, columns)
        labelled = (
            (name, dataset, labels)
            for what, datasets in splits.items()
            for name, dataset, (_, labels) in zip(names, datasets, read[what], strict=True)
        )
        check_class_names(labelled, columns[1])
        return cls.from_arrays(
            read["train"],
            read.get("test"),
            validation=read.get("validation"),
            groups=groups,
            attributes=attributes,
            names=names,
            num_classes=num_classes,
            test_fraction=test_fraction,
            validation_fraction=validation_fraction,
            seed=seed,
        )


def _fractions(**given: float) -> dict[str, float]:
    return {what: argument(f"{what}_fraction", value, float) for what, value in given.items()}


def _check_seed(seed: int) -> None:
    check(argument("seed", seed, int) >= 0, "seed", seed, "0 or more")


def _validation(
    shards: Sequence[ChosenPair] | None, names: Sequence[str], fraction: float
) -> Split | None:
    """The validation examples, given or a fraction. Raises `UsageError` if there are none."""
    if shards is None:
        return None
    found = for_validation(shards, fraction)
    expected = f"an example for any of {counted(len(names), 'client')}; give some, or leave it out"
    check(found is not None, "validation", "no example", expected)
    return joined(shards)
