"""Clients as they are given: in a list, or by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from umbel.checks import check, is_plain
from umbel.data.dataframes import is_table
from umbel.summary import counted, few


def listed(
    clients: Sequence[Any] | Mapping[str, Any], what: str, names: Sequence[str] | None
) -> tuple[list[Any], tuple[str, ...]]:
    """The clients and their names. Raises `UsageError` unless there are some."""
    kind = type(clients).__name__
    if isinstance(clients, Mapping):
        keys = list(map(str, clients))
        _check_different(keys)
        names = tuple(keys if names is None else map(str, names))
        expected = f"those of {what}, each once: it is a mapping by name"
        check(sorted(names) == sorted(keys), "names", few(names), expected)
        by_name = dict(zip(keys, clients.values(), strict=True))
        clients = [by_name[name] for name in names]
    fine = isinstance(clients, Iterable) and not hasattr(clients, "dtype") and not is_table(clients)
    check(
        fine and not isinstance(clients, str), what, kind, "a list, with an entry for each client"
    )
    entries = list(clients)
    check(bool(entries), what, kind, "filled: it needs at least one client")
    names = tuple(map(str, range(len(entries)) if names is None else names))
    said = counted(len(names), "name")
    check(len(names) == len(entries), "names", said, f"a name for each of {len(entries)} clients")
    for name in names:
        fine = is_plain(name) and bool(name.strip())
        check(fine, "names", name, "a name without control characters")
    _check_different(names)
    return entries, names


def _check_different(names: Sequence[str]) -> None:
    for most, times in Counter(names).most_common(1):
        check(times == 1, "names", most, "the name of one client only")


def in_order(
    given: Iterable[Any] | Mapping[str, Any], what: str, names: tuple[str, ...]
) -> list[Any]:
    """What is given for each client, in a list or by name, in the order of their names."""
    entries = list(given)
    check(len(entries) == len(names), what, len(entries), f"as many clients as {len(names)}")
    if not isinstance(given, Mapping):
        return entries
    by_name = {str(name): entry for name, entry in given.items()}
    for name in names:
        check(name in by_name, what, f"a mapping without {name}", "one of the clients in train")
    return [by_name[name] for name in names]


def check_picked(clients: Sequence[int], count: int) -> None:
    """Raise `UsageError` unless these are some of `count` clients, none of them twice."""
    check(len(clients) > 0, "clients", list(clients), "filled: it needs at least one client")
    for client in clients:
        fine = hasattr(client, "__index__") and 0 <= client < count
        check(fine, "clients", client, f"the number of a client, in 0 to {count - 1}")
    most, times = Counter(int(client) for client in clients).most_common(1)[0]
    check(times == 1, "clients", most, "named once only: a client's name is that of one client")


def pair(entry: Any, name: str) -> tuple[Any, Any]:
    """The x and the y of a client."""
    fine = isinstance(entry, tuple | list) and len(entry) == 2
    kind = type(entry).__name__
    said = f"{kind} of {len(entry)}" if isinstance(entry, tuple | list) else kind
    is_dataset = any(kind.__name__ == "Dataset" for kind in type(entry).__mro__)
    hint = "; for datasets write umbel.Federation.from_datasets(...)" if is_dataset else ""
    check(fine, f"client {name}", said, f"a pair (x, y){hint}")
    return entry[0], entry[1]
