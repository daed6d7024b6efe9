"""Conversion of values that users give for clients, in a list or by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from umbel.checks import UsageError, check, is_plain
from umbel.data.dataframes import is_table
from umbel.data.split_names import check_no_splits
from umbel.summary import counted, few


def listed(
    clients: Sequence[Any] | Mapping[str, Any], names: Sequence[str] | None
) -> tuple[list[Any], tuple[str, ...]]:
    """The clients of `train` and their names. Raises `UsageError` unless there are some."""
    kind = type(clients).__name__
    if isinstance(clients, Mapping):
        keys = list(map(str, clients))
        _check_different(keys)
        names = tuple(keys if names is None else map(str, names))
        expected = "the names that train has, each of them once"
        check(sorted(names) == sorted(keys), "names", few(names), expected)
        by_name = dict(zip(keys, clients.values(), strict=True))
        clients = [by_name[name] for name in names]
    fine = isinstance(clients, Iterable) and not hasattr(clients, "dtype") and not is_table(clients)
    fine = fine and not isinstance(clients, str)
    check(fine, "train", kind, "a list, with an entry for each client")
    entries = list(clients)
    check(bool(entries), "train", kind, "filled with clients: give at least one")
    names = tuple(map(str, range(len(entries)) if names is None else names))
    said = counted(len(names), "name")
    check(len(names) == len(entries), "names", said, f"a name for each of {len(entries)} clients")
    for name in names:
        fine = is_plain(name) and bool(name.strip())
        check(fine, "names", name, "a name without control characters that is not blank")
    _check_different(names)
    check_no_splits(names)
    return entries, names


def _check_different(names: Sequence[str]) -> None:
    for most, times in Counter(names).most_common(1):
        check(times == 1, "names", most, "the name of only one client")


def by_split(
    train: list[Any], names: tuple[str, ...], **others: Iterable[Any] | Mapping[str, Any] | None
) -> dict[str, list[Any]]:
    """Each client's entries in the given splits. Raises `UsageError` as `in_order` does."""
    given = {"train": train}
    for what, each in others.items():
        if each is not None:
            given[what] = in_order(each, what, names)
    return given


def in_order(
    given: Iterable[Any] | Mapping[str, Any], what: str, names: tuple[str, ...]
) -> list[Any]:
    """The values for the clients, given in a list or by name, in the order of `names`.

    A Series of pandas is by name if its index contains clients' names. Raises `UsageError` unless
    there is a value for every client, and for no other.
    """
    flat = not is_table(given) or getattr(given, "ndim", 1) == 1
    check(flat, what, type(given).__name__, "a list or a mapping by client; give one column of it")
    by_name = _by_name(given, what, names)
    if by_name is None:
        entries = list(given)
        check(len(entries) == len(names), what, len(entries), f"as many clients as {len(names)}")
        return entries
    known = set(names)
    lacking = [name for name in names if name not in by_name]
    others = [name for name in by_name if name not in known]
    if lacking or others:
        parts = [f"lacks {few(lacking)}"] if lacking else []
        parts += [f"names {few(others)}, not in train"] if others else []
        how = "" if isinstance(given, Mapping) else "; in clients' order, give its .tolist()"
        raise UsageError(f"{what}: {' and '.join(parts)}: it needs one entry for each client{how}")
    return [by_name[name] for name in names]


def _by_name(given: Any, what: str, names: tuple[str, ...]) -> dict[str, Any] | None:
    """The values by the names of clients; None if they are in the order of the clients.

    Raises `UsageError` for a Series whose index consists of words that name no client, since its
    order is unknown.
    """
    if isinstance(given, Mapping):
        return {str(name): entry for name, entry in given.items()}
    if not is_table(given):
        return None
    index, known = [str(label) for label in given.index], set(names)
    if known.isdisjoint(index):
        numbered = all(hasattr(label, "__index__") for label in given.index)
        expected = "clients' names; if it is in the order of clients, give its .tolist()"
        check(numbered, f"{what}: index", few(index), expected)
        return None
    for most, times in Counter(index).most_common(1):
        check(times == 1, f"{what}: index", most, "unique: each client needs one entry")
    return dict(zip(index, given, strict=True))


def check_picked(clients: Sequence[int], count: int) -> None:
    """Raise `UsageError` unless these are some of `count` clients, each only once."""
    whole = not any("bool" in str(getattr(client, "dtype", type(client))) for client in clients)
    expected = "numbers of clients: for a mask, give the positions where it is true"
    check(whole, "clients", "truth values", expected)
    check(len(clients) > 0, "clients", list(clients), "a list of at least one client")
    for client in clients:
        fine = hasattr(client, "__index__") and 0 <= client < count
        check(fine, "clients", client, f"the number of a client, in 0 to {count - 1}")
    most, times = Counter(int(client) for client in clients).most_common(1)[0]
    check(times == 1, "clients", most, "unique: give each client only once")


def pair(entry: Any, name: str) -> tuple[Any, Any]:
    """The x and the y of a client."""
    fine = isinstance(entry, tuple | list) and len(entry) == 2
    kind = type(entry).__name__
    said = f"{kind} of {len(entry)}" if isinstance(entry, tuple | list) else kind
    is_dataset = any(kind.__name__ == "Dataset" for kind in type(entry).__mro__)
    hint = "; for datasets write umbel.Federation.from_datasets(...)" if is_dataset else ""
    check(fine, f"client {name}", said, f"a pair (x, y){hint}")
    both = all(isinstance(part, tuple) and len(part) == 2 for part in entry)
    split = both and all(
        hasattr(value, "shape") and value.shape for part in entry for value in part
    )
    expected = "(x, y): give the pairs for the test as test=, in the same order or by name"
    check(not split, f"client {name}", "pairs of training and of test", expected)
    return entry[0], entry[1]
