"""Reading of map-style datasets, of torch or Hugging Face, into lists of examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from umbel.checks import UsageError, check


class Dataset(Protocol):
    """The required interface of a dataset: a length, and (x, y) or named values by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def check_clients(train: object) -> None:
    """Raise `UsageError` for a `DatasetDict` of Hugging Face whose entries are splits."""
    if type(train).__name__ != "DatasetDict" or not isinstance(train, Mapping):
        return
    known = ("train", "validation", "test")  # some data sets have several tests, such as test_b
    splits = [name for name in train if str(name).startswith(known)]
    expected = (
        "a dataset for each client: it has the splits " + ", ".join(splits) + ". Choose one, such "
        'as splits["train"], and divide it among clients with its select or filter'
    )
    check("train" not in splits or len(splits) == 1, "train", type(train).__name__, expected)


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
    return read


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
