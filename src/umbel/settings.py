"""Types of settings, checked by one rule for TOML files and constructors."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import torch

from umbel.checks import UsageError, check_decorated, import_hint, kind_of, lacking, nearest, shown
from umbel.help.synonyms import same, synonym

SCALARS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
"""The types of single values, in words. Numbers are finite, and of 64 bits if whole."""

MOST_ITEMS = 10_000
"""Largest number of items in a list of a setting: each item takes time and memory."""


def whole_path(text: Path | str, folder: Path | None = None) -> Path:
    """The absolute path, with `~` expanded; relative to the folder, or to the current one."""
    below = Path.cwd() if folder is None else folder
    return Path(os.path.normpath(below.absolute() / os.path.expanduser(text)))  # noqa: PTH111


class UnfitError(ValueError):
    """A value of the wrong type; the message starts with the value, not with a field."""

    place = ""  # of a list's item, such as "[2]"
    hint = ""  # end of the message: what to write instead


class NotATableError(UnfitError):
    """A value where a table is expected."""

    def __init__(self, value: Any) -> None:
        super().__init__(f"{shown(value)} is not a table")
        self.word = value if isinstance(value, str) else ""


class Settings:
    """Base class of all settings: a dataclass whose constructor checks and converts its fields.

    Scalars of NumPy or torch become Python's, and lists become tuples. A whole number is accepted
    where a float is declared, and stays a whole number. Any other value of a wrong type raises
    `UsageError` before the `__post_init__` of the subclass runs. Only fields whose types are
    scalars, literals, dataclasses, or tuples of these are checked.
    """

    may_be_infinite: ClassVar[frozenset[str]] = frozenset()
    """Names of the numbers that need not be finite; the class checks them itself."""
    path_settings: ClassVar[frozenset[str]] = frozenset()
    """Names of the texts that are paths: in a TOML file they are relative to its folder."""
    no_paths: ClassVar[frozenset[str]] = frozenset()
    """Values of these settings that are no paths, such as the names of what is built in."""

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Raise `UsageError` with advice for an unknown keyword."""
        kind: Any = cls
        known: Any = _parameters(kind)
        for name in () if known is None else sorted(named.keys() - set(known)):
            values = {**dict(zip(known, given, strict=False)), **named}
            hint = what_to_write(cls, name, values)
            raise UsageError(f"{cls.__name__}: {name}: unknown; {hint}")
        if given and all(f.kw_only for f in fields(kind) if f.init):
            names = ", ".join(f"{name}=..." for name in known)
            raise UsageError(f"{cls.__name__}: give values by name: {public_name(cls)}({names})")
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
    """A field of a dataclass, with the types and strings that surely fit it."""

    name: str
    kind: Any
    types: tuple[type, ...]  # values of these very types fit,
    options: frozenset[str]  # and so do these strings

    def holds(self, value: Any) -> bool:
        """Return True if the value surely fits. It is fast, as each round makes settings."""
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
        hint = getattr(bare(kind), "_hint", "") or _instead(value, bare(kind))
        plain = isinstance(value, str | int | float | type | None)
        error = UnfitError(
            f"{shown(value) if plain else kind_of(value)} is not {in_words(kind)}{hint}"
        )
        error.hint = hint
        raise error
    return value


def _instead(value: Any, kind: type) -> str:
    """Return what to write for an object of this class in place of this value."""
    word = value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)
    made = [each for each in _subclasses(kind) if not inspect.isabstract(each)]
    if isinstance(value, type) and value in made:
        return f"; write {public_name(value)}()"
    if issubclass(kind, Settings) and (
        made == [kind] or (kind in made and isinstance(value, dict))
    ):
        pairs = _pairs(value, kind)
        return f"; write {public_name(kind)}({', '.join(f'{k}={shown(v)}' for k, v in pairs)})"
    names = {each.__name__.casefold(): each for each in reversed(made)}
    plain = word.casefold().replace("-", "").replace("_", "")
    if plain in names:
        return f"; write {public_name(names[plain])}()"
    close = difflib.get_close_matches(plain, names, n=1)
    if close:
        return f"; did you mean {public_name(names[close[0]])}()?"
    public = sorted(name for each in made if "." in (name := public_name(each)))
    return f"; write {' or '.join(f'{name}()' for name in public)}" if 0 < len(public) < 4 else ""


def _pairs(value: Any, kind: Any) -> list[tuple[str, Any]]:
    """The settings that a mapping or a word most likely stands for."""
    known = {field.name: field for field in declared(kind)}
    if isinstance(value, Mapping):
        return [(name, of) for key, of in value.items() if (name := same(str(key), known))]
    if isinstance(value, str):
        fits = [name for name, field in known.items() if value in field.options]
        fits += [name] if (name := same(value, known)) else []
        return [(name, value) for name in fits[:1]]
    return []


def _subclasses(kind: type) -> list[type]:
    """The class and all that extend it."""
    below = type.__subclasses__(kind) if is_dataclass(kind) else []
    return [kind, *(each for one in below for each in _subclasses(one))]


def public_name(kind: type) -> str:
    """The name of a class as users write it, such as `umbel.Adam`."""
    name = kind.__name__
    ours = kind.__module__.startswith("umbel.") and name in sys.modules["umbel"].__all__
    return f"umbel.{name}" if ours else name


ELSEWHERE = {
    "rounds": "write run.rounds(30), or run.save(folder, 30)",
    "device": 'write umbel.Run(..., engine=umbel.EngineSettings(device="cuda"))',
    "workers": "write umbel.Run(..., engine=umbel.EngineSettings(workers=2))",
    "seed": "write umbel.Run(..., seed=1)",
    "participation": "write umbel.Run(..., participation=0.1)",
    "lr": "write umbel.LocalTraining(lr=0.1), a method's `local`",
    "epochs": "write umbel.LocalTraining(epochs=5), a method's `local`",
    "batch_size": "write umbel.LocalTraining(batch_size=32), a method's `local`",
    "optimizer": "write umbel.LocalTraining(optimizer=umbel.Adam()), a method's `local`",
    "clients": 'write umbel.scenario("rotated-digits", clients=20), or give data of more clients',
    "num_clusters": "not every method has it; umbel.IFCA(num_clusters=4) has",
    "folder": "write run.save(folder, 30), or run.rounds(30, folder=folder)",
}
"""Advice for names that are no setting of a class, but are expected there."""


def what_to_write(thing: Any, word: str, given: Mapping[str, Any]) -> str:
    """A hint for an unknown keyword of a class or a function that was called with `given`."""
    known = [name for name, _ in _members(thing)]
    if own := synonym(word, [name for name in known if name not in given]):
        return f"did you mean {own}?"
    value = given.get(word)
    text = shown(value) if isinstance(value, str | int | float) else "..."
    found, usual = min(_paths(thing, word, given), default=None), same(word, ELSEWHERE)
    # Steps of time have rounds, and attacks clients, but those of the run are meant.
    if found and usual not in ("rounds", "clients"):
        *_, path = found
        return f"write {'('.join(path)}={text}{')' * (len(path) - 1)}"
    return ELSEWHERE[usual] if usual else nearest(word, known)


def _paths(thing: Any, word: str, given: Any) -> Iterator[tuple[bool, int, tuple[str, ...]]]:
    """Yield the paths of a setting within a class, such as ("local=umbel.LocalTraining", "lr").

    The first entries are lower for paths that are more likely meant.
    """
    for name, usual in _members(thing):
        value = (
            given.get(name, usual) if isinstance(given, Mapping) else getattr(given, name, usual)
        )
        kind = value if isinstance(value, type) else type(value)
        if issubclass(kind, Settings):
            start, absent = f"{name}={public_name(kind)}", isinstance(value, type)
            if found := same(word, [member for member, _ in _members(kind)]):
                yield absent, 1, (start, found)
            for lacking_, depth, path in _paths(kind, word, value):
                yield absent or lacking_, depth + 1, (start, *path)


def _members(thing: Any) -> Iterator[tuple[str, Any]]:
    """The names that a class or a function is given, each with its default, or else its type."""
    if is_dataclass(thing):
        usual = {f.name: f for f in fields(thing)}
        for field in declared(cast("Any", thing)):
            default, factory = usual[field.name].default, usual[field.name].default_factory
            default = default if factory is MISSING else factory()
            yield field.name, _default(default, field.kind)
        return
    hints: dict[str, Any] = {}
    with suppress(NameError, TypeError):  # of a name that is imported for type checkers alone
        hints = get_type_hints(thing)
    for name, parameter in inspect.signature(thing).parameters.items():
        yield name, _default(parameter.default, hints.get(name))


def _default(default: Any, kind: Any) -> Any:
    if default is None or default is MISSING or default is inspect.Parameter.empty:
        classes = [bare(member) for member in members_of(kind) if isinstance(bare(member), type)]
        return next((each for each in classes if issubclass(each, Settings)), None)
    return default


P = ParamSpec("P")
R = TypeVar("R")


def hinting(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: an unknown keyword raises `UsageError` with advice."""

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> R:
        try:
            return function(*given, **named)
        except TypeError as error:
            within = error.__traceback__ and error.__traceback__.tb_next
            unknown = sorted(named.keys() - inspect.signature(function).parameters.keys())
            if within is not None or not unknown:
                raise
            name = function.__qualname__.removesuffix(".__init__")
            hint = what_to_write(function, unknown[0], named)
            raise UsageError(f"{name}: {unknown[0]}: unknown; {hint}") from None

    return call


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
    """Return True for a union of literals or scalars."""
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
    """Return True if the value is this literal: True is not 1."""
    try:
        return bool(scalar(value, type(option)) == option)
    except UnfitError:
        return False


def is_tuple(kind: Any) -> bool:
    """Return True for a tuple of named types."""
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
    hint = next((refusal.hint for refusal in refusals if refusal.hint), "")
    raise UnfitError(f"{shown(value)} is not {' or '.join(map(in_words, members))}{hint}")


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
    """Return True if `isinstance` can check values of this class: dataclasses and engines."""
    return is_dataclass(kind) or getattr(kind, "_is_runtime_protocol", False)
