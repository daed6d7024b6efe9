"""Seals: a digest of a whole file, inside the file, so that damage anywhere in it is noticed.

The digest replaces zeros, with which it was computed. It is inside the file because a rename
replaces exactly one file. A seal reveals damage and mistakes, not deliberate changes: anyone can
seal a changed file again. Texts have SHA-256's; tensors have XXH3's, which for megabytes in every
round takes a twentieth of the time.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from xxhash import xxh3_128

from umbel.checks import UsageError
from umbel.files.reading import read_bytes

KEY, BLANK = "seal", "0" * 32

AGAIN = "bring back a copy of the file, or make the run again"

# The names of the members are left open, and some of the digits may be none: a seal that is damaged
# itself is one that is not right.
IN_TENSORS = re.compile(rb'.{8}\{"__metadata__":\{".{5}":"\{\\".{4}\\": \\"(.{32})', re.DOTALL)
IN_TEXT = re.compile(
    rb'".{4}": "(.{32})"[\s}\]]*\Z'  # JSON
    rb"|\A#.{5}: (.{32}).",  # TOML
    re.DOTALL,
)

DIGITS, ENOUGH = frozenset(b"0123456789abcdef"), 20
"""Characters of a seal; this many of the 32 tell a damaged seal from another text."""

BROKEN = (
    *(ValueError, TypeError, LookupError, AttributeError),
    *(ArithmeticError, RecursionError),
)
"""Errors that reading a changed or damaged value may raise."""

Data = bytes | mmap.mmap

T = TypeVar("T")


def seal(data: Data, after: str = "") -> tuple[int, str] | None:
    """Return the place and the value of the seal of a file or line; None if it has no place.

    A line is sealed `after` the line before it, by that line's seal.
    """
    in_text = isinstance(data, bytes)
    found = IN_TEXT.search(data) if in_text else IN_TENSORS.match(data)
    if found is None:
        return None
    start, end = found.span(found.lastindex or 0)
    if found.lastindex == 1 and sum(byte in DIGITS for byte in found[1]) < ENOUGH:
        return None
    total = (hashlib.sha256 if in_text else xxh3_128)(after.encode())
    with memoryview(data) as view, view[:start] as before, view[end:] as behind:
        for part in (before, BLANK.encode(), behind):
            total.update(part)
    return start, total.hexdigest()[: len(BLANK)]


def sealed(text: str, after: str = "") -> str:
    """Return the text with its seal in place of the zeros."""
    place = seal(text.encode(), after)
    assert place is not None, "no place for a seal"
    start, whole = place
    raw = text.encode()
    return (raw[:start] + whole.encode() + raw[start + len(BLANK) :]).decode()


def intact(data: Data, after: str = "") -> bool | None:
    """Return True if data are as they were sealed, False if not, and None without a seal."""
    place = seal(data, after)
    if place is None:
        return None
    start, whole = place
    return data[start : start + len(BLANK)] == whole.encode()


def check_seal(whole: bool | None) -> None:
    """Raise `ValueError` for a seal that does not match, or that is not there."""
    if not whole:
        raise ValueError("its seal does not match")


def seal_file(file: Path) -> None:
    """Put its seal into a file of tensors that was written with zeros in its place."""
    with file.open("r+b") as opened:
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            place = seal(data)
        assert place is not None, "no place for a seal"
        opened.seek(place[0])
        opened.write(place[1].encode())


def file_intact(file: Path) -> bool | None:
    """Check a whole file as `intact` does, without keeping it in memory."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return intact(data)


def json_text(value: Any) -> str:
    """A table as JSON, or a list of tables, with a seal in the last of them."""
    if isinstance(value, list):
        text = json.dumps([*value[:-1], {**value[-1], KEY: BLANK}], indent=2)
    else:
        text = json.dumps({**value, KEY: BLANK})
    return sealed(text + "\n")


def json_value(file: Path, make: Callable[[Any], T], advice: str = AGAIN) -> T | None:
    """Read a value that `json_text` wrote, and convert it; None without the file.

    Raises `UsageError` where the file is damaged.
    """
    try:
        raw = read_bytes(file)
    except UsageError:
        if file.exists():
            raise
        return None
    try:
        value = json.loads(raw)
        table = value[-1] if isinstance(value, list) and value else value
        check_seal(intact(raw))
        del table[KEY]
        return make(value)
    except BROKEN as error:
        raise UsageError(f"{file}: damaged: {error}; {advice}") from None
