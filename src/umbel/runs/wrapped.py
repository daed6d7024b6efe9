"""Wrappers of methods, `Restarts` and `Sharing`, whose keys the table of any method may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeAlias

from umbel.algorithms import Restarts, Sharing
from umbel.algorithms.base import Algorithm
from umbel.checks import nearest

Wrapper: TypeAlias = Restarts | Sharing

WRAPPERS: tuple[type[Wrapper], ...] = (Restarts, Sharing)
"""The outermost first."""


def keys_of(wrapper: type[Wrapper]) -> tuple[str, ...]:
    """What a table may say of a wrapper, beside the settings of the method within."""
    return tuple(f.name for f in fields(wrapper) if f.name != "of")


def structured(
    settings: Mapping[str, Any],
    method: type,
    structure: Callable[[Mapping[str, Any], type], Any],
    wrappers: tuple[type[Wrapper], ...] = WRAPPERS,
) -> Any:
    """The method of a table, in the wrappers that the table asks for and the method is not itself.

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
    whole = structure({**about, "of": of}, outer)
    return of if whole.idle else whole


def hint(key: str, kind: type) -> str:
    """What was meant by a key that the table of this dataclass does not have."""
    own = [f.name for f in fields(kind)]
    if not issubclass(kind, Algorithm):
        return nearest(key, own)
    others = [wrapper for wrapper in WRAPPERS if not {*wrapper.asked_by} & {*own}]
    for wrapper in others:
        if key in keys_of(wrapper):
            name = wrapper.asked_by[0]
            return f"it goes with {name}, such as {name} = {getattr(wrapper, name)!r}"
    return nearest(key, [*own, *(key for wrapper in others for key in keys_of(wrapper))])
