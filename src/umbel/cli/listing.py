"""The command `umbel list`. It loads none of the listed things, so it answers at once."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from fnmatch import fnmatchcase
from textwrap import fill
from typing import Any

import click

from umbel.checks import UsageError, closest, command, nearest
from umbel.cli.catalogue import KINDS, comparisons, complete_kinds, entries, groups, times
from umbel.cli.options import form_options
from umbel.cli.printing import RowFormat, print_rows
from umbel.help.field_docs import FieldDoc, field_docs, in_python
from umbel.result.table import Table
from umbel.summary import counted

THINGS = {"papers": "paper result"}
"""The noun for one item of a kind, if it is not the name of the kind."""

SETTINGS = "settings"

TABLES = {"methods": "algorithm", "scenarios": "scenario", "models": "model"}
"""The table of an experiment that names a thing of this kind."""

MOST_OWNERS = 8
"""Longest list of the names that a table can have."""

MOST_LINES = 3
"""Lines of names of each kind in the overview, so that it fits a screen."""


@click.command(name="list")
@click.argument(
    "kind",
    required=False,
    metavar=f"[{'|'.join([*KINDS, SETTINGS])}]",
    shell_complete=complete_kinds,
)
@click.argument("pattern", required=False)
@form_options
def list_(kind: str | None, pattern: str | None, form: RowFormat | None) -> None:
    """List what there is: an overview, or a sentence for each thing of one kind.

    PATTERN keeps those whose name it is part of, or fits with * and ?, such as 'rotated-*'. A
    method, scenario or model whose name it is comes with its settings. `umbel list settings` has
    every setting of an experiment by its path: what it is for, its default and its range.
    """
    if kind is None:
        if form is None:
            _print_overview()
        else:
            print_rows(Table.of(row for k in KINDS for row in _rows(k, entries(k))), form)
        return
    if kind == SETTINGS:
        listed = settings_rows(pattern)
        print_rows(Table.of(listed), form) if form is not None else _print_settings(listed)
        return
    if kind not in KINDS:
        raise UsageError(f"kind: {kind!r} is not known; {_kind_hint(kind)}")
    sentences = _matching(kind, pattern)
    if form is not None:
        print_rows(Table.of(_rows(kind, sentences)), form)
    elif kind in ("methods", "experiments") and pattern not in sentences:
        _print_groups(kind, sentences)
    else:
        _print_sentences(sentences, {name: times(name) for name in sentences if kind == "papers"})
        if pattern in sentences and kind in TABLES:
            _print_settings(_settings_of(pattern, TABLES[kind]))


def _kind_hint(word: str) -> str:
    """Return advice for an unknown kind, which may be the name of a thing."""
    for kind in KINDS:
        if word in entries(kind):
            return f"write `{command('list', kind, word)}`"
    known = [*KINDS, SETTINGS]
    if closest(word, known) is None:
        from umbel.experiment.setting_paths import path_of_setting  # which loads PyTorch

        if setting := path_of_setting(word.removesuffix("s")):
            return f"write `{command('list', SETTINGS, setting)}`"
    return nearest(word, known)


def settings_rows(pattern: str | None) -> list[dict[str, str]]:
    """The settings whose path fits a pattern, each table's under its path."""
    # PyTorch loads for the classes that have the fields.
    from umbel.experiment.setting_paths import path_of_setting, tables

    rows = []
    for each in tables():
        whose = ", ".join(each.names) if len(each.names) <= MOST_OWNERS else ""
        for doc in field_docs(each.kind):
            path = each.full(doc.name)
            if doc.name != "of" and (pattern is None or _fits(path, pattern)):
                rows.append(_row(doc, path, whose))
    if not rows and pattern is not None:
        meant = path_of_setting(pattern)
        if meant is not None and meant != pattern:
            return settings_rows(meant)
        raise UsageError(f"pattern: {pattern!r} is in no path of a setting")
    return rows


def _settings_of(name: str, table: str) -> list[dict[str, str]]:
    """The settings of the one thing with this name, a method, scenario or model."""
    from umbel.experiment.setting_paths import REGISTRIES  # which loads PyTorch

    (thing,) = (r[name] for kind, r in REGISTRIES.items() if kind.__name__.lower() == table)
    rows = _settings_in(thing, table, name)
    return sorted(rows, key=lambda row: row["path"].rpartition(".")[0])


def _settings_in(thing: Any, path: str, name: str) -> Iterator[dict[str, str]]:
    """The settings of a class, or of a preset: of the tables in it, too, that it has changed."""
    preset = not isinstance(thing, type)
    kind: Any = type(thing) if preset else thing
    for doc in field_docs(kind):
        value = getattr(thing, doc.name, None) if preset else None
        if doc.name == "of":
            yield from _settings_in(value, path, name)
            continue
        default = in_python(value) if preset else doc.default
        full = f"{path}.{doc.name}"
        yield _row(replace(doc, default=default), full, name)
        if default != doc.default and is_dataclass(value):
            yield from _settings_in(value, full, name)


def _row(doc: FieldDoc, path: str, whose: str) -> dict[str, str]:
    said = {"default": doc.default, "meaning": doc.meaning, "range": doc.allowed}
    return {"path": path, "of": whose, **said}


def _print_settings(rows: Iterable[Mapping[str, str]]) -> None:
    """The settings of each table under its path."""
    above = None
    for row in rows:
        table, _, key = row["path"].rpartition(".")
        if (table, row["of"]) != above:
            above = table, row["of"]
            title = f"[{table}]" if table else "the experiment"
            click.secho(f"\n{title}{' of ' if row['of'] else ''}{row['of']}", bold=True)
        click.echo(f"  {key}" + (f" = {row['default']}" if row["default"] else ""))
        said = "; ".join(part for part in (row["meaning"], row["range"]) if part)
        click.echo(_filled(said, "      "))


def _matching(kind: str, pattern: str | None) -> dict[str, str]:
    """The things of a kind that a pattern names. Raises `UsageError` where it names none."""
    known = entries(kind)
    if pattern is None:
        return known
    named = {name for name in known if _fits(name, pattern)}
    if kind == "experiments":  # the name of a comparison stands for all that are in it
        named |= {
            n for group, names in comparisons().items() if _fits(group, pattern) for n in names
        }
    if not named:
        hint = nearest(pattern, known, f"`umbel list {kind}` shows all")
        raise UsageError(f"pattern: {pattern!r} is in no name of {kind}; {hint}")
    return {name: text for name, text in known.items() if name in named}


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) if set(pattern) & set("*?[") else pattern in name


def _rows(kind: str, sentences: Mapping[str, str]) -> Iterator[dict[str, str | None]]:
    group = {name: group for group, names in groups(kind).items() for name in names}
    for name, text in sentences.items():
        own: dict[str, str | None] = {"comparison": None, "group": None}
        if name in group:
            own["comparison" if kind == "experiments" else "group"] = group[name]
        yield {"kind": kind, "name": name, **own, "description": text}


def _print_overview() -> None:
    """Each kind with how many there are, and the first of their names."""
    for kind in KINDS:
        names: Iterable[str] = entries(kind)
        title = counted(len(entries(kind)), THINGS.get(kind, kind[:-1]))
        if kind == "experiments":
            names = comparisons()
            title += f", in {len(comparisons())} comparisons"
        click.secho(title, bold=True)
        click.echo(_filled(", ".join(names), "  ", most=MOST_LINES))
    click.echo(f"\nA sentence for each: umbel list {'|'.join(KINDS)}")


def _print_groups(kind: str, sentences: Mapping[str, str]) -> None:
    """The methods of each group, or the experiments of each comparison, under its name."""
    for group, names in groups(kind).items():
        shown = {name: sentences[name] for name in names if name in sentences}
        if shown:
            how = f": all of them by `umbel compare {group}`" if kind == "experiments" else ""
            click.secho(f"{group}{how}", bold=True)
            _print_sentences(shown, {}, "  ")


def _print_sentences(
    sentences: Mapping[str, str], more: Mapping[str, str], indent: str = ""
) -> None:
    """A name and its sentence a line, longer ones folded."""
    wide = max(len(name) for name in sentences) + 2
    for name, text in sentences.items():
        whole = " ".join(filter(None, (text, more.get(name, ""))))
        click.echo(_filled(whole, f"{indent}{name:{wide}}", indent + " " * wide))


def _filled(text: str, first: str, rest: str | None = None, most: int | None = None) -> str:
    width = min(shutil.get_terminal_size().columns, 120)
    indent = first if rest is None else rest
    return fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        max_lines=most,
        placeholder=" ...",
    )
