"""Refusals of bad values: they name the field, show the value and say what was expected."""

from __future__ import annotations

import difflib
import inspect
import re
import shlex
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, get_origin

from umbel.help.synonyms import synonym

LONGEST_VALUE_CHARACTERS = 160
"""Characters of a value that a message shows."""

LARGEST = 2**63 - 1
"""The largest whole number that a setting may be."""

NO_FIELD = re.compile(r"\s*(\w+\s*\.\s*)*(ClassVar|InitVar)\b")
"""Matches annotations, as text, that do not declare a field of a dataclass."""

FIELD = re.compile(r"(\w+)[\w.\[\]]*(?: = [^:]*)?: ")
"""Matches the beginning of a message: a field, and a part of it."""

SMALL = 2**26
"""Requests for fewer bytes are not checked."""

UNKNOWN = 2**40
"""Free bytes that are assumed if the system reports none."""


class UsageError(ValueError):
    """Raised for a mistake that the user can correct: the message names it and says what to write.

    >>> umbel.IFCA(num_clusters=0)
    Traceback (most recent call last):
    umbel.checks.UsageError: num_clusters: 0 is not 1 or more
    """


class InUseError(UsageError):
    """Another process is running in the folder of a run."""


class QuorumError(RuntimeError):
    """Raised if too few clients gave a usable reply for the round to continue; see `Limits`."""

    #: The errors of each run, if it ended several at once; its message has all of theirs.
    runs: Sequence[QuorumError] = ()


class WorkersDiedError(QuorumError):
    """Raised if the processes that work for some clients were killed again and again."""


class ClusterLostError(WorkersDiedError):
    """Raised if the Ray cluster that worked for the clients went down."""


class DivergedError(QuorumError):
    """Raised if too few replies are usable because training diverged: change the settings."""


NO_MEMORY = ("DefaultCPUAllocator: can't allocate memory", "could not execute a primitive")
"""Words in the messages of PyTorch's allocator and of oneDNN, which needs memory of its own."""


def lacks_memory(error: BaseException) -> bool:
    """Return True for an error by which PyTorch says that the machine has no memory left."""
    if not isinstance(error, RuntimeError) or isinstance(error, QuorumError):
        return False
    return any(words in str(error) for words in NO_MEMORY)


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn PyTorch's errors about lack of memory in the `with` block into `MemoryError`."""
    try:
        yield
    except RuntimeError as error:
        if not lacks_memory(error):
            raise
        said = first_line(error).removesuffix(".").rpartition("allocate memory: ")[2]
        raise MemoryError(said) from error


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Add the name of the round or run to a `QuorumError` that is raised inside."""
    try:
        yield
    except QuorumError as error:
        raise type(error)(f"{where}: {error}") from None


def check(holds: bool, field: str, value: object, expected: str) -> None:
    """Raise `UsageError` naming the field, its value and what was expected, unless it holds.

    >>> from umbel.method import check
    >>> check(0 <= 1.5 < 1, "decay", 1.5, "in [0, 1)")
    Traceback (most recent call last):
    umbel.checks.UsageError: decay: 1.5 is not in [0, 1)
    """
    if isinstance(holds, str):  # a message in place of the condition would always count as true
        raise TypeError(f"check({holds!r}, ...): first comes what must hold, then the field's name")
    if not holds:
        raise UsageError(f"{field}: {shown(value)} is not {expected}")


def check_least(settings: object, least: int, *names: str) -> None:
    """Raise `UsageError` unless the settings of these names are None, or `least` or more."""
    for name in names:
        value = getattr(settings, name)
        check(value is None or value >= least, name, value, f"{least} or more")


def check_returned(recipe: object, built: object, kind: type, named: str) -> None:
    """Raise `UsageError` unless the `build` of a recipe has returned a value of this kind."""
    if not isinstance(built, kind):
        got = "None" if built is None else kind_of(built)
        hint = ": does it end by return?" if built is None else ""
        raise UsageError(f"{type(recipe).__name__}.build returned {got}, not {named}{hint}")


@contextmanager
def within(path: str, names: Container[str]) -> Iterator[None]:
    """Put this path before a refusal, raised inside, that begins with one of these fields."""
    try:
        yield
    except UsageError as error:
        named = FIELD.match(str(error))
        if named is None or named[1] not in names:
            raise
        raise type(error)(f"{path}.{error}") from None


def shown(value: object) -> str:
    """A value as messages show it: on one line, cut if it is long; for an array, its type alone."""
    if _holds_arrays(value):
        return kind_of(value)
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # a number of too many digits; lists in lists in lists
        return f"a value of type {type(value).__name__}, too long to be shown,"
    cut = len(text) - LONGEST_VALUE_CHARACTERS
    return text if cut <= 0 else f"{text[:LONGEST_VALUE_CHARACTERS]}... ({cut:,} characters more)"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the error's type if the message is empty.

    The next line comes with one that ends in a colon, and so on.
    """
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    whole = next((n for n, line in enumerate(lines, 1) if not line.endswith(":")), len(lines))
    return " ".join(lines[:whole]) or type(error).__name__


def kind_of(value: object) -> str:
    """The type of a value that must not be shown, as it may hold clients' examples."""
    return with_article(type(value).__name__)


def with_article(name: str) -> str:
    """`an Engine`, `a Run`."""
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def _holds_arrays(value: object, depth: int = 4) -> bool:
    """Return True for an array, tensor or table, or one at most `depth` levels inside."""
    if getattr(value, "ndim", 0):
        return True
    if isinstance(value, Mapping):
        value = list(value.values())
    if depth == 0 or not isinstance(value, list | tuple | set | frozenset):
        return False
    return any(_holds_arrays(each, depth - 1) for each in value)


def lacking(value: object) -> str | None:
    """Return in words the form that a number or text lacks; None if it is valid.

    Texts may contain line breaks and tabs, but no other control characters.
    """
    if isinstance(value, float) and not isfinite(value):
        return "a finite number"
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        return "a whole number of 64 bits, which end at 2^63 - 1"
    if isinstance(value, str) and not is_plain(value.translate({9: " ", 10: " "})):
        return "a text without control characters"
    return None


def is_plain(text: str) -> bool:
    """Return True for a text of valid UTF-8 without control characters or line breaks.

    Joining characters, which some scripts and emoji need, are allowed. Characters that change the
    direction of the text after them are not.
    """
    return text.isprintable() or not any(map(_acts, text))


def command(*words: object) -> str:
    """A command of umbel, quoted so that a shell accepts any file name in it."""
    return shlex.join(["umbel", *map(str, words)])


def printable(text: str, but: str = "") -> str:
    """Replace characters that a terminal or a page would act on by escapes, except those in `but`.

    The result can't move the cursor, change the direction of text or end a line.
    """
    if is_plain(text):
        return text
    return "".join(c if c in but or is_plain(c) else repr(c)[1:-1] for c in text)


def _acts(character: str) -> bool:
    if character in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069":
        return True
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def nearest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint for an unknown name: the most similar one, else `otherwise`, else all known names.

    Upper and lower case are not distinguished.
    """
    names = list(known)
    if close := closest(name, names):
        return f"did you mean {close}?"
    return otherwise or f"known: {', '.join(names)}"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that other libraries call by this one, else the most similar; None without.

    Names with the word as a part, such as rotated-mnist with mnist, are more similar than others.
    """
    names = list(known)
    if other := synonym(name, names):
        return other
    folded = {each.casefold(): each for each in reversed(names)}
    parts = (each for each in names if name.casefold() in re.split("[-_ ]", each.casefold()))
    if name.casefold() not in folded and (part := next(parts, None)):
        return part
    apart = {each: _letters_apart(name.casefold(), each) for each in folded}
    close = min(apart, key=apart.__getitem__, default="")
    # One wrong letter, or two that are missing; in long names, an eighth of both.
    fine = close and apart[close] <= max(2, (len(name) + len(close)) // 8)
    return folded[close] if fine else None


def _letters_apart(name: str, other: str) -> int:
    """How many letters of both are not in common; a wrong one counts twice."""
    common = difflib.SequenceMatcher(None, name, other).get_matching_blocks()
    return len(name) + len(other) - 2 * sum(block.size for block in common)


def check_decorated(kind: type, base: type) -> None:
    """Raise `UsageError` if a subclass of `base` has annotations but is not a dataclass.

    Its annotations would be ignored silently: it would only have the fields of its base class.
    """
    for each in kind.__mro__:
        if not issubclass(each, base) or "__dataclass_fields__" in vars(each):
            continue
        known: Any = getattr(each, "__dataclass_fields__", {})
        for name, annotation in inspect.get_annotations(each).items():
            narrowed = name in known and name not in vars(each)
            if _is_field(annotation) and not narrowed:
                said = "this default is ignored" if name in known else "is not a field"
                hint = f"write @dataclass(frozen=True) above class {each.__name__}"
                raise UsageError(f"{each.__name__}: {name}: {said}: {hint}")


def _is_field(annotation: object) -> bool:
    """Return True if a dataclass would make a field of this annotation."""
    if isinstance(annotation, str):
        return NO_FIELD.match(annotation) is None
    outer = get_origin(annotation) or annotation
    return not (outer is ClassVar or outer is InitVar or isinstance(outer, InitVar))


def import_hint(value: object, kind: object) -> str:
    """A hint for a function that was given in place of its name as text; "" for other values."""
    if kind is not str or not callable(value) or isinstance(value, type):
        return ""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "<")
    if module in (None, "__main__") or "<" in name:
        return '; write it in a file, such as mymetrics.py, and name it: "mymetrics:top2"'
    return f'; write "{module}:{name}"'


def check_memory(needed: int, what: str) -> None:
    """Raise `UsageError` if `needed` bytes, for `what`, are more than this process can allocate."""
    if needed <= SMALL:
        return
    free = free_memory()
    if needed > free:
        have = f"the {free / 2**30:,.1f} GiB of memory that are free"
        raise UsageError(f"{what}: {needed / 2**30:,.1f} GiB is more than {have}")


def free_memory() -> int:
    """Return the bytes that this process can still allocate, as far as the system says."""
    tables = [_table("/proc/meminfo"), _table("/sys/fs/cgroup/memory.stat")]
    of_machine = tables[0].get("MemAvailable:")
    free = UNKNOWN if of_machine is None else of_machine * 1024
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())  # of a container
    except (OSError, ValueError):
        return free
    return min(free, limit - tables[1].get("anon", 0))


def _table(file: str) -> dict[str, int]:
    """The names and numbers in a file such as /proc/meminfo; empty if it can't be read."""
    try:
        lines = Path(file).read_text().splitlines()
        return {name: int(value) for name, value, *_ in map(str.split, lines)}
    except (OSError, ValueError):
        return {}
