"""Reading of map-style datasets, of torch or Hugging Face, into lists of examples."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from umbel.checks import UsageError, check
from umbel.data.split_names import split_named
from umbel.summary import few

log = logging.getLogger(__name__)

SPLITS = ("train", "test", "validation")
"""Names of the splits that a client may have."""

READ_TWICE = 64
"""Examples of all clients that are read twice, at least four of each."""


class Dataset(Protocol):
    """The required interface of a dataset: a length, and (x, y) or named values by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def own_splits(clients: list[Any], names: Sequence[str]) -> dict[str, list[Any]]:
    """The datasets of each split, if clients have their own: by name, or as (training, test).

    Without splits, all are for training. Raises `UsageError` if only some clients have one.
    """
    entries = [_by_split(entry) for entry in clients]
    first = next((entry for entry in entries if entry), {})
    for entry, name in zip(entries, names, strict=True):
        said = ", ".join(entry) or "no splits"
        check(
            entry.keys() == first.keys(), f"client {name}", said, f"{', '.join(first)}, as others"
        )
    if not first:
        return {"train": clients}
    return {what: [entry[what] for entry in entries] for what in first}


def _by_split(entry: object) -> dict[str, Any]:
    if isinstance(entry, Mapping) and "train" in map(split_named, entry):
        more = sorted(str(key) for key in entry if split_named(key) is None)
        check(not more, "splits of a client", more, f"any of {', '.join(SPLITS)}: leave them out")
        named = {split_named(key): each for key, each in entry.items()}
        expected = f"one for each of {', '.join(SPLITS)}"
        check(len(named) == len(entry), "splits of a client", [*map(str, entry)], expected)
        return {what: named[what] for what in SPLITS if what in named}
    if isinstance(entry, tuple | list) and len(entry) == 2 and all(map(_is_dataset, entry)):
        return dict(zip(("train", "test"), entry, strict=True))
    return {}


def _is_dataset(value: object) -> bool:
    """Whether a value has examples, and is none itself."""
    indexed = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    return indexed and not hasattr(value, "shape") and not isinstance(value, tuple | list | str)


def read_all(
    splits: Mapping[str, Sequence[Dataset]], names: Sequence[str], columns: tuple[str, str]
) -> dict[str, list[tuple[list[object], list[object]]]]:
    """All x and all y of the clients' datasets in each split; each example is read once.

    Raises `UsageError` if a dataset is not map-style, returns something else than examples, or has
    images in another colour space than others.
    """
    read = {
        what: [arrays_of(each, name, columns) for each, name in zip(many, names, strict=True)]
        for what, many in splits.items()
    }
    inputs: Iterator[Any] = (x for clients in read.values() for xs, _ in clients for x in xs)
    modes = sorted({str(x.mode) for x in inputs if is_image(x)})
    check(len(modes) < 2, "images of modes", modes, "one mode: convert all of them to the same")
    _warn_of_random(splits, read, names, columns)
    return read


def _warn_of_random(
    splits: Mapping[str, Sequence[Dataset]],
    read: Mapping[str, Sequence[tuple[list[object], list[object]]]],
    names: Sequence[str],
    columns: tuple[str, str],
) -> None:
    """Warn of examples that are others when they are read once more, here some of each dataset."""
    most = max(4, READ_TWICE // len(names))
    for what, datasets in splits.items():
        changing = [
            name
            for name, dataset, (xs, ys) in zip(names, datasets, read[what], strict=True)
            if any(
                not _same((xs[place], ys[place]), _pair(dataset[place], name, columns))
                for place in range(0, len(xs), max(1, len(xs) // most))
            )
        ]
        if changing:
            log.warning(
                "%s examples of %s: reading them twice gives different ones, and they are read "
                "once: %s",
                *(what, f"client{'s' * (len(changing) > 1)} {few(changing)}"),
                "every epoch gets the same draws of the random transform. Give the dataset without "
                "it, and augment in the module's forward, if self.training"
                if what == "train"
                else "scores depend on the draws of the random transform. If this is a part of one "
                "dataset with a training transform, as by random_split or Subset, take that part "
                "of a second dataset without it",
            )


def _same(one: Any, other: Any) -> bool:
    """Whether two examples are equal, as far as they are of numbers, arrays, tensors or images."""
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Tensor) and one.layout == torch.strided and isinstance(other, Tensor):
        return torch.equal(one.nan_to_num(), other.nan_to_num())
    if not isinstance(one, np.ndarray | np.generic | int | float) and not is_image(one):
        return True
    arrays = np.asarray(one), np.asarray(other)
    return np.array_equal(*arrays, equal_nan=arrays[0].dtype.kind == "f")


def is_image(value: object) -> bool:
    """Whether it is an image of PIL."""
    return hasattr(value, "mode") and hasattr(value, "convert")


def arrays_of(
    dataset: Dataset, client: str, columns: tuple[str, str]
) -> tuple[list[object], list[object]]:
    """All x and all y of a client's dataset; each example is read once.

    Raises `UsageError` if it is not a map-style dataset, or returns something else than examples.
    """
    _check_columns(columns)
    kind = type(dataset).__name__
    fine = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    expected = "a map-style dataset, with a length and examples by number"
    check(fine, f"client {client}", kind, f"{expected}; for a DataLoader, give its .dataset")
    fine = not isinstance(dataset, Mapping)
    check(fine, f"client {client}", kind, "one dataset: choose one of those inside by its name")
    pairs = [_pair(_read(dataset, place, client), client, columns) for place in range(len(dataset))]
    return [x for x, _ in pairs], [y for _, y in pairs]


def _check_columns(columns: object) -> None:
    """Raise `UsageError` unless these are two names, for x and y."""
    named = columns if isinstance(columns, tuple | list) else ()
    fine = len(named) == 2 and all(isinstance(name, str) for name in named)
    check(fine, "columns", columns, "a pair of names, (name of x, name of y): one column each")


def _read(dataset: Dataset, place: int, client: str) -> Any:
    """An example; errors of the dataset get a note with the client and the index."""
    try:
        return dataset[place]
    except Exception as error:
        error.add_note(f"This was example {place} of client {client}.")
        raise


def _pair(example: Any, client: str, columns: tuple[str, str]) -> tuple[object, object]:
    if isinstance(example, Mapping):
        for name in columns:
            known = f"any of {', '.join(map(repr, example))}; write columns=(name of x, name of y)"
            check(name in example, f"client {client}: columns", name, known)
        example = example[columns[0]], example[columns[1]]
    if not isinstance(example, tuple | list) or len(example) != 2:
        of = f" of {len(example)}" if isinstance(example, tuple | list) else ""
        what = f"a {type(example).__name__}{of}"
        raise UsageError(f"client {client}: an example of the dataset is {what}, not a pair (x, y)")
    x, y = (_brightness(part, client) if is_image(part) else part for part in example)
    return x, y


def _brightness(image: Any, client: str) -> object:
    """An image whose values are brightness on the scale of 8 bits, as those of other modes are."""
    fine = image.mode != "P"  # its values are indices into its own palette
    expected = 'an image of colours or greys: write image.convert("RGB"), or "L"'
    check(fine, f"client {client}", "an image with a palette", expected)
    expected = 'one with 8 bits a value: give np.asarray(image, dtype="float32") in its place'
    check(not image.mode.startswith("I"), f"client {client}: image of mode", image.mode, expected)
    return image.convert("L") if image.mode == "1" else image
