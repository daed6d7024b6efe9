"""Wrappers of methods: the table of any method may have the keys of `Restarts` and `Sharing`.

`Remembered` has none: the scheme of a method's local training asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from typing import Any

from umbel.algorithms import Remembered, Restarts, Sharing, Watched
from umbel.algorithms.base import Algorithm, Wrapper, scheme_of
from umbel.checks import within

WRAPPERS: tuple[type[Wrapper[Any]], ...] = (Watched, Restarts, Sharing, Remembered)
"""The outermost first."""


def keys_of(wrapper: type[Wrapper[Any]]) -> tuple[str, ...]:
    """Return the keys of a wrapper in the table of a method; none if no table asks for it."""
    if not wrapper.asked_by:
        return ()
    return tuple(f.name for f in fields(wrapper) if f.name != "of")


def structured(
    settings: Mapping[str, Any],
    method: type,
    structure: Callable[[Mapping[str, Any], type], Any],
    wrappers: tuple[type[Wrapper[Any]], ...] = WRAPPERS,
) -> Any:
    """Make the method of a table, inside the wrappers for which the table has settings.

    `structure` makes a dataclass of a table of its fields.
    """
    if not wrappers:
        return structure(settings, method)
    outer, *inner = wrappers
    own, rest = {f.name for f in fields(method)}, tuple(inner)
    if not settings.keys() & {*outer.asked_by} or own & {*outer.asked_by}:
        return structured(settings, method, structure, rest)
    about = {key: settings[key] for key in keys_of(outer) if key in settings}
    alone = {key: value for key, value in settings.items() if key not in about}
    of = structured(alone, method, structure, rest)
    return structure({**about, "of": of}, outer)


def watched(algorithm: Algorithm[Any], threshold: float | None) -> Algorithm[Any]:
    """Return the completed method, whose clients are watched if there is a threshold.

    Each of several starts has a suspicion of its own, as clusters of two starts have nothing in
    common.
    """
    if isinstance(algorithm, Restarts):
        return completed(replace(algorithm, of=watched(algorithm.of, threshold)))
    alone = algorithm.of if isinstance(algorithm, Watched) else algorithm
    return completed(alone) if threshold is None else Watched(completed(alone), threshold)


def completed(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """Return the method in the wrapper that its scheme of training needs, and in no idle ones.

    Every run and experiment drops wrappers that change nothing, such as `Restarts` with one start,
    so that its states and its file are those of the method. Raises `UsageError` if some clients
    would train without the scheme.
    """
    if not isinstance(algorithm, Wrapper):
        scheme = scheme_of(algorithm)
        return Remembered(algorithm) if scheme is not None and scheme.column else algorithm
    alone = isinstance(algorithm, Remembered | Sharing)
    of = algorithm.of if alone else completed(algorithm.of)
    if algorithm.idle:
        return completed(of)
    return algorithm if of is algorithm.of else replace(algorithm, of=of)


def goes_with(key: str, kind: type) -> str:
    """Return the key that this one needs in the same table of this class; "" if none."""
    for wrapper in _others(kind):
        if key in keys_of(wrapper):
            name = wrapper.asked_by[0]
            return f"it needs {name} beside it, such as {name} = {getattr(wrapper, name)!r}"
    return ""


def known_keys(kind: type) -> list[str]:
    """The keys that the table of this dataclass may have."""
    own = [f.name for f in fields(kind)]
    return [*own, *(key for wrapper in _others(kind) for key in keys_of(wrapper))]


def _others(kind: type) -> list[type[Wrapper[Any]]]:
    """Return the wrappers whose keys the table of this class may have; none if it is no method."""
    if not issubclass(kind, Algorithm):
        return []
    own = {f.name for f in fields(kind)}
    return [wrapper for wrapper in WRAPPERS if not {*wrapper.asked_by} & own]


def under(path: str, settings: Any) -> AbstractContextManager[None]:
    """Put the path of these settings before a refusal that begins with a field of theirs."""
    return within(path, _names(settings))


def _names(settings: Any) -> set[str]:
    """Return the fields of settings; a wrapper and its method share a table."""
    inner = _names(settings.of) if isinstance(settings, Wrapper) else set()
    return inner | {f.name for f in fields(settings)}
