"""Types of settings, checked by one rule for TOML files and constructors."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

import torch

from umbel.checks import UsageError, check_decorated, import_hint, kind_of, lacking, nearest, shown

SCALARS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
"""The types of single values, in words. Numbers are finite, and of 64 bits if whole."""

MOST_ITEMS = 10_000
"""Largest number of items in a list of a setting: each item takes time and memory."""


class UnfitError(ValueError):
    """A value of the wrong type; the message starts with the value, not with a field."""

    place = ""  # of a list's item, such as "[2]"


class Settings:
    """Base class of all settings: a dataclass whose constructor checks and converts its fields.

    Scalars of NumPy or torch become Python's, and lists become tuples. A whole number is accepted
    where a float is declared, and stays a whole number. Any other value of a wrong type raises
    `UsageError` before the `__post_init__` of the subclass runs. Only fields whose types are
    scalars, literals, dataclasses, or tuples of these are checked.
    """

    former: ClassVar[Mapping[str, str]] = {}
    """Former names of settings and their present names; TOML files may use both."""
    may_be_infinite: ClassVar[frozenset[str]] = frozenset()
    """Names of the numbers that need not be finite; the class checks them itself."""

    def __new__(cls, *given: Any, **named: Any) -> Self:  # noqa: ARG004
        """Raise `UsageError` for an unknown keyword, and suggest the most similar known one."""
        kind: Any = cls
        known: Any = _parameters(kind)
        for name in () if known is None else sorted(named.keys() - set(known)):
            present = cls.former.get(name)
            hint = f"it is {present} now" if present else nearest(name, known)
            raise UsageError(f"{cls.__name__}: {name}: unknown; {hint}")
        return super().__new__(cls)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = cls.__dict__.get("__post_init__")
        if own is not None:
            cls.__post_init__ = _after_fitting(own)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        fit_fields(self)


@cache
def _parameters(kind: Any) -> tuple[str, ...] | None:
    """The names that a constructor takes; None if it takes any. Raises as `check_decorated`."""
    check_decorated(kind, Settings)
    _, *own = inspect.signature(kind.__init__).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in own)
    return None if takes_any else tuple(parameter.name for parameter in own)


def _after_fitting(own: Callable[..., None]) -> Callable[..., None]:
    @wraps(own)
    def post_init(self: Settings, *given: Any) -> None:
        fit_fields(self)
        own(self, *given)

    return post_init


def fit_fields(settings: Any) -> None:
    """Convert each field of a new dataclass to its type, or raise `UsageError`."""
    kind: Any = type(settings)
    for field in declared(kind):
        value = getattr(settings, field.name)
        if field.holds(value) or (type(value) is float and field.name in kind.may_be_infinite):
            continue
        try:
            fit = fitted(value, field.kind)
        except UnfitError as error:
            raise UsageError(f"{kind.__name__}: {field.name}{error.place}: {error}") from None
        if fit is not value and type(value) is not int:  # 1 is written as given
            object.__setattr__(settings, field.name, fit)  # it may be frozen


def argument(name: str, value: Any, kind: Any) -> Any:
    """Convert the value of a function's argument to this type, as for a field of settings.

    Raises `UsageError` that names the argument if the value does not fit the type.
    """
    try:
        return fitted(value, kind)
    except UnfitError as error:
        raise UsageError(f"{name}{error.place}: {error}") from None


@dataclass(frozen=True)
class Declared:
    """A field of a dataclass, with what is needed to accept most values quickly."""

    name: str
    kind: Any
    types: tuple[type, ...]  # values of these very types fit,
    options: frozenset[str]  # and so do these strings

    def holds(self, value: Any) -> bool:
        """Whether the value fits for sure. Settings are made in every round, so this is quick."""
        if type(value) is str and value in self.options:
            return True
        return type(value) in self.types and lacking(value) is None


@cache
def declared(kind: Any) -> tuple[Declared, ...]:
    """The fields of a dataclass that it is given, and their types."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            hints = get_type_hints(kind, localns=unknown)
        except NameError as error:
            # The name is known only where the class was written, as one within a function.
            unknown[str(error.name)] = Any
        else:
            return tuple(_declared(f.name, hints[f.name]) for f in fields(kind) if f.init)


def _declared(name: str, kind: Any) -> Declared:
    members = members_of(kind)
    types = tuple(member for member in members if member in (NoneType, *SCALARS))
    options = (o for m in members if get_origin(m) is Literal for o in get_args(m))
    return Declared(name, kind, types, frozenset(o for o in options if isinstance(o, str)))


def fitted(value: Any, kind: Any) -> Any:
    """Convert the value to this type. Raises `UnfitError` if it does not fit."""
    if kind in SCALARS:
        return scalar(value, kind)
    if is_choice(kind):
        return choice(value, kind)
    if is_tuple(kind):
        return _fitted_items(value, kind)
    members = members_of(kind)
    if len(members) > 1:
        return _any_of(value, members)
    if _is_judged(bare(kind)) and not isinstance(value, bare(kind)):
        made = isinstance(value, type) and issubclass(value, bare(kind))
        hint = f"; write {value.__name__}()" if made else getattr(bare(kind), "_hint", "")
        said = kind_of(value) if isinstance(value, list | tuple | dict) else shown(value)
        raise UnfitError(f"{said} is not {in_words(kind)}{hint}")
    return value


def scalar(value: Any, kind: type) -> Any:
    """Convert to one of `SCALARS`; a whole number is accepted as a float. Raises `UnfitError`."""
    plain = _scalar(value, kind)
    if (fault := lacking(plain)) is not None:
        raise UnfitError(f"{shown(value)} is not {fault}")
    return plain


def _scalar(value: Any, kind: type) -> Any:
    if type(value) is kind:
        return value
    # NumPy's scalars and torch's have no dimensions, and give Python's.
    plain = value.item() if getattr(value, "ndim", None) == 0 else value
    if kind is str and isinstance(plain, os.PathLike | torch.device):
        return str(plain)
    number = kind is float and isinstance(plain, int)
    if (number or isinstance(plain, kind)) and (kind is bool or not isinstance(plain, bool)):
        with suppress(OverflowError):  # a float has room for 308 digits
            return str.__str__(plain) if kind is str else kind(plain)
    raise UnfitError(f"{shown(value)} is not {in_words(kind)}{import_hint(value, kind)}")


def is_choice(kind: Any) -> bool:
    """Whether this is one of several literals or scalars."""
    members = members_of(kind)
    literal = any(get_origin(member) is Literal for member in members)
    return literal or (len(members) > 1 and all(m in (NoneType, *SCALARS) for m in members))


def choice(value: Any, kind: Any) -> Any:
    """One of several scalars or literals."""
    members = members_of(kind)
    if value is None and NoneType in members:
        return None
    for member in members:
        for option in get_args(member):
            if _is_same(value, option):
                return option
        if member in SCALARS:
            with suppress(UnfitError):
                return scalar(value, member)
    if (fault := lacking(value)) is not None:
        raise UnfitError(f"{shown(value)} is not {fault}")
    known = [str(option) for member in members for option in get_args(member)]
    close = difflib.get_close_matches(str(value), known, n=1, cutoff=0.55)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise UnfitError(f"{shown(value)} is not {in_words(kind)}{hint}")


def _is_same(value: Any, option: Any) -> bool:
    """Whether the value is this literal: True is not 1."""
    try:
        return bool(scalar(value, type(option)) == option)
    except UnfitError:
        return False


def is_tuple(kind: Any) -> bool:
    """Whether this is a tuple of types that it names."""
    return get_origin(kind) is tuple


def items_of(value: Any, kind: Any) -> list[tuple[Any, Any]]:
    """The items of a list or tuple, each with its type. Raises `UnfitError` for other values."""
    if getattr(value, "ndim", None) == 1:
        value = value.tolist()
    members = get_args(kind)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        named = import_hint(value, members[0])
        hint = f"; write [{shown(value)}]" if type(value) is members[0] else named
        raise UnfitError(f"{shown(value)} is not {in_words(kind)}{hint}")
    if len(value) > MOST_ITEMS:
        raise UnfitError(f"a list of {len(value):,} is not a list of at most {MOST_ITEMS:,}")
    if members[-1] is Ellipsis:
        return [(item, members[0]) for item in value]
    if len(value) != len(members):
        raise UnfitError(f"{shown(value)} is not a list of {len(members)}")
    return list(zip(value, members, strict=True))


def _fitted_items(value: Any, kind: Any) -> Any:
    items = []
    for number, (item, member) in enumerate(items_of(value, kind)):
        try:
            items.append(fitted(item, member))
        except UnfitError as error:
            error.place = f"[{number}]{error.place}"
            raise
    return tuple(items)


def _any_of(value: Any, members: Sequence[Any]) -> Any:
    """A value of one of several types, not all of them scalars."""
    if value is None and NoneType in members:
        return None
    refusals = []
    for member in members:
        if member is not NoneType:
            try:
                return fitted(value, member)
            except UnfitError as refusal:
                refusals.append(refusal)
    if len(refusals) == 1:
        raise refusals[0]
    raise UnfitError(f"{shown(value)} is not {' or '.join(map(in_words, members))}")


def members_of(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def bare(kind: Any) -> Any:
    """Algorithm[Any] -> Algorithm."""
    return get_origin(kind) or kind


def in_words(kind: Any) -> str:
    """Describe the values of a type, in words for messages."""
    if kind in SCALARS:
        return SCALARS[kind]
    if get_origin(kind) is Literal:
        return " or ".join(f'"{o}"' if isinstance(o, str) else repr(o) for o in get_args(kind))
    if is_tuple(kind):
        return "a list"
    members = [member for member in members_of(kind) if member is not NoneType]
    if len(members) > 1 or members != [kind]:
        return " or ".join(map(in_words, members))
    name = getattr(bare(kind), "__name__", str(kind))
    return f"an {name}" if name[0] in "AEIOU" else f"a {name}"


def _is_judged(kind: Any) -> bool:
    """Whether `isinstance` can check values of this class: dataclasses, and engines."""
    return is_dataclass(kind) or getattr(kind, "_is_runtime_protocol", False)
