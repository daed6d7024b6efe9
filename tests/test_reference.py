"""Every public name has a docstring that says what it is for, a place in the reference, and
examples that run."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

import umbel
from umbel import method, networks, testing

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PUBLIC = [f"{m.__name__}.{name}" for m in (umbel, method, networks, testing) for name in m.__all__]


def thing_of(full: str) -> object:
    module, _, name = full.rpartition(".")
    return getattr(import_module(module), name)


def said(full: str) -> str:
    """The docstring of a class or a function, or the one below a constant."""
    thing = thing_of(full)
    if isinstance(thing, type) or inspect.isroutine(thing):
        return inspect.getdoc(thing) or ""
    name = full.rpartition(".")[2]
    for module in [m for n, m in sys.modules.items() if n.partition(".")[0] == "umbel"]:
        if vars(module).get(name) is thing and module.__file__:
            body = ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
            for place, node in enumerate(body[:-1]):
                below = body[place + 1]
                if assigns(node, name) and isinstance(below, ast.Expr):
                    return str(ast.literal_eval(below.value))
    return ""


def assigns(node: ast.stmt, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


@pytest.mark.parametrize("full", PUBLIC)
def test_a_public_name_says_in_a_sentence_what_it_is_for(full: str) -> None:
    first = said(full).partition("\n")[0]
    assert re.fullmatch(r"[A-Z].*[^.]\.", first), first
    assert not re.match(r"(Of|So many|Where)\b", first), first


@pytest.mark.parametrize("full", PUBLIC)
def test_a_public_dataclass_says_what_each_field_is(full: str) -> None:
    kind = thing_of(full)
    if not isinstance(kind, type) or not is_dataclass(kind):
        return
    told = set()
    for each in kind.__mro__:
        if each.__module__.startswith("umbel"):
            source, _ = inspect.getsourcelines(each)
            told |= set(documented(source))
    assert not {member.name for member in fields(kind)} - told


def documented(lines: list[str]) -> Iterator[str]:
    """The fields of a class that `#:` stands beside, or above."""
    above = False
    for line in lines:
        found = re.match(r"    (\w+): ", line)
        if found and (above or "#:" in line):
            yield found[1]
        above = line.strip().startswith("#:")


@pytest.mark.parametrize("full", PUBLIC)
def test_examples_of_a_public_name_run(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    thing = thing_of(full)
    if not isinstance(thing, type) and not inspect.isroutine(thing):
        return
    for example in doctest.DocTestFinder(recurse=True).find(thing, full, globs={"umbel": umbel}):
        results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
        assert not results.failed, example.name


def test_every_public_name_is_on_one_page_of_the_reference() -> None:
    listed: list[str] = []
    for page in REFERENCE.glob("*.md"):
        for module, names in re.findall(
            r"```\{entries\} (\S+)\n(.*?)```", page.read_text("utf-8"), re.DOTALL
        ):
            listed += [f"{module}.{name}" for name in names.split()]
    checks = [f"umbel.testing.{check.__name__}" for check in testing.CHECKS]
    assert sorted(listed) == sorted([*PUBLIC, *checks])
