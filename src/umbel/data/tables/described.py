"""What each column of a table became, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from umbel.checks import printable
from umbel.data.tables.encoding import Encoding
from umbel.data.tables.statistics import Column
from umbel.summary import MOST_LISTED, counted

WIDTH = 88
"""Characters of a line."""

MOST_LINES = 20
"""Lines of a description."""

NUMBERED = re.compile(r"(.*?)(\d+)")


def described(encoding: Encoding) -> str:
    """Lines such as `columns: age: number; ward: 7 categories; row: left out`."""
    of: dict[str, list[str]] = {}  # what columns became -> their names
    if encoding.client is not None:
        of["client"] = [encoding.client]
    for column in encoding.columns:
        of.setdefault(_kind(column, encoding), []).append(column.name)
    target = encoding.target
    what = "a number" if target.classes is None else counted(len(target.classes), "class")
    of[f"target, {what.replace('classs', 'classes')}"] = [target.name]
    for unused in encoding.unused:
        of.setdefault(unused.use, []).append(unused.name)
    phrases = [f"{_names(names)}: {_plural(use, len(names))}" for use, names in of.items()]
    return _wrapped(["columns: " + phrases[0], *phrases[1:]])


def _kind(column: Column, encoding: Encoding) -> str:
    if column.kind == "text":
        many = encoding.tokens if encoding.tokenizer is not None else encoding.buckets
        return f"text as {many:,} {'tokens' if encoding.tokenizer is not None else 'numbers'}"
    if column.kind != "category":
        return f"{column.kind}, with gaps" if column.gaps else column.kind
    said = [counted(sum(known is not None for known in column.known), "category")]
    said += ["others"] if column.others else []
    said += ["missing"] if None in column.known else []
    return " and ".join(said).replace("categorys", "categories")


def _plural(use: str, count: int) -> str:
    if count > 1 and use.startswith(("number", "date")):
        kind, _, rest = use.partition(",")
        return f"{count:,} {kind}s" + (f",{rest}" if rest else "")
    return f"{use} each" if count > 1 and use[0].isdigit() else use


def _names(names: Sequence[str]) -> str:
    """Names in a row, with `pixel0..pixel63` for those that are numbered."""
    runs: list[list[str]] = []
    for name in map(printable, names):
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]}..{run[-1]}"] if len(run) > 2 else run
    more = len(parts) - MOST_LISTED
    shown = ", ".join(parts[:MOST_LISTED])
    return shown if more <= 0 else f"{shown} and {more:,} more"


def _follows(before: str, name: str) -> bool:
    one, other = NUMBERED.fullmatch(before), NUMBERED.fullmatch(name)
    return bool(one and other and one[1] == other[1] and int(one[2]) + 1 == int(other[2]))


def _wrapped(phrases: Iterable[str]) -> str:
    """The phrases in lines that break between them."""
    lines: list[str] = []
    for phrase in phrases:
        if lines and len(lines[-1]) + len(phrase) + 2 <= WIDTH:
            lines[-1] += f"; {phrase}"
        else:
            lines.append(phrase if not lines else f"  {phrase}")
    more = len(lines) - MOST_LINES
    return "\n".join(
        lines if more <= 0 else [*lines[:MOST_LINES], "  and others: see encoding.json"]
    )
