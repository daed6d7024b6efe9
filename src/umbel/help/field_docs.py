"""The meaning and the range of a dataclass's fields, read from its source when asked for.

The comment beside a field is the one place that tells its meaning, and the sentence of its
`check` the one that tells its range: help, the command line and the reference all read them there.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, SupportsIndex, get_origin, get_type_hints

from umbel.summary import settings

TITLE = "Fields:"
"""Stands above the fields in a docstring."""

COMMENT = re.compile(r"\s+#:? (?!noqa|type:)(.*)")


@dataclass(frozen=True)
class FieldDoc:
    """One field of a dataclass, in words."""

    name: str
    default: str  # as in Python; "" if a value must be given
    meaning: str
    allowed: str  # types and range; "" if its type says it all

    def __str__(self) -> str:
        given = f"{self.name} = {self.default}" if self.default else self.name
        said = "; ".join(part for part in (self.meaning, self.allowed) if part)
        return f"    {given}\n        {said}" if said else f"    {given}"


@cache
def field_docs(kind: Any) -> tuple[FieldDoc, ...]:
    """The fields that a dataclass is given, in their order."""
    known = {f.name: f for f in fields(kind) if f.init and not f.name.startswith("_")}
    comments: dict[str, str] = {}
    ranges: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        lines, written = _module(each.__module__)
        tree = written.get(each.__qualname__)
        if isinstance(tree, ast.ClassDef):
            comments |= _comments(tree, lines)
            ranges |= _ranges(tree, each.__module__, frozenset(known))
    try:
        hints = get_type_hints(kind)
    except (NameError, TypeError):  # of a type that is imported for type checkers alone
        hints = {}
    return tuple(
        FieldDoc(
            name,
            _default(f),
            comments.get(name, ""),
            _allowed(hints.get(name), ranges.get(name, "")),
        )
        for name, f in known.items()
    )


class FullDoc(str):
    """The docstring of a dataclass, followed by its fields when it is shown."""

    kind: Any

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        """The whole text: `inspect.cleandoc`, for `help` and notebooks, begins with this call."""
        told = "\n".join(map(str, field_docs(self.kind)))
        whole = f"{inspect.cleandoc(str(self))}\n\n{TITLE}\n{told}" if told else str(self)
        return whole.expandtabs(tabsize)


def explained(thing: Any) -> Any:
    """Return the object; a dataclass shows its fields in `help` from now on."""
    if isinstance(thing, type) and is_dataclass(thing):
        written = vars(thing).get("__doc__")
        if type(written) is str:
            full = FullDoc(written)
            full.kind, thing.__doc__ = thing, full
    return thing


def explain_all(names: Mapping[str, Any]) -> None:
    """Have all dataclasses of a module tell of their fields in `help`."""
    for name in names["__all__"]:
        explained(names[name])


@cache
def _module(name: str) -> tuple[list[str], Mapping[str, ast.stmt]]:
    """The lines of a module's source, and its classes and functions by name."""
    try:
        source = inspect.getsource(sys.modules[name])
    except (OSError, TypeError, KeyError):  # a prompt, or a module in C
        return [], {}
    named = (ast.ClassDef, ast.FunctionDef)
    found = {node.name: node for node in ast.parse(source).body if isinstance(node, named)}
    return source.splitlines(), found


def _comments(tree: ast.ClassDef, lines: list[str]) -> dict[str, str]:
    """The comment that ends a field's line, or those on the lines above it."""
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        beside = COMMENT.search(lines[(node.end_lineno or node.lineno) - 1])
        above: list[str] = []
        number = node.lineno - 2
        while beside is None and (line := COMMENT.match(lines[number])):
            above.insert(0, line[1])
            number -= 1
        found[node.target.id] = beside[1] if beside else " ".join(above)
    return found


def _ranges(tree: ast.AST, module: str, known: frozenset[str]) -> dict[str, str]:
    """Return the ranges of fields, by the checks of a class or of the functions that they call."""
    found: dict[str, str] = {}
    names = vars(sys.modules[module])
    for node in _unconditional(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        given = [each.value if isinstance(each, ast.Constant) else each for each in node.args]
        if node.func.id == "check" and len(given) == 4 and given[1] in known:
            said = names.get(given[3].id) if isinstance(given[3], ast.Name) else given[3]
            if isinstance(said, str) and not said.startswith("allowed") and ":" not in said:
                found.setdefault(str(given[1]), said)
        elif node.func.id == "check_least":
            found = {name: f"{given[1]!s} or more" for name in given[2:] if name in known} | found
        elif node.func.id.startswith("check_") and inspect.isfunction(names.get(node.func.id)):
            inner = names[node.func.id]
            source = _module(inner.__module__)[1].get(inner.__name__)
            for name, said in _ranges(source, inner.__module__, known).items() if source else ():
                found.setdefault(name, said)
    return found


def _unconditional(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes that are not under an `if`, which checks combinations of settings."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.If):
            yield node
            yield from _unconditional(node)


def _default(field: Field[Any]) -> str:
    if field.default_factory is not MISSING:
        return in_python(field.default_factory())
    return "" if field.default is MISSING else in_python(field.default)


def in_python(value: Any) -> str:
    """A value as in Python, of a dataclass only what differs from its defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        text = settings(value)
        return text if text.endswith(")") else f"{text}()"
    return getattr(value, "__name__", None) or repr(value)


def _allowed(kind: Any, said: str) -> str:
    """Type and range in words, of settings that are numbers, texts or choices."""
    from umbel.settings import SCALARS, in_words, is_choice, members_of  # which loads PyTorch

    members = members_of(kind)
    if kind in SCALARS or is_choice(kind):
        words = in_words(kind)
    elif any(get_origin(member) is tuple for member in members):
        words = "a list"
    else:
        return said
    return f"{words}; {said}" if said and not said.startswith(("a ", "an ")) else said or words
