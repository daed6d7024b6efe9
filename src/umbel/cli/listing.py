"""The command `umbel list`. It loads none of the listed things, so it answers at once."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from textwrap import fill

import click

from umbel.checks import LONGEST, UsageError, check, nearest
from umbel.cli.catalogue import KINDS, comparisons, entries, times
from umbel.cli.completing import complete_kinds
from umbel.cli.options import RowFormat, form_options
from umbel.cli.printing import print_rows
from umbel.runs.rows import Table
from umbel.summary import counted

THINGS = {"papers": "paper result"}
"""The noun for one item of a kind, if it is not the name of the kind."""

MOST_LINES = 3
"""Lines of names of each kind in the overview, so that it fits a screen."""


@click.command(name="list")
@click.argument(
    "kind", required=False, metavar=f"[{'|'.join(KINDS)}]", shell_complete=complete_kinds
)
@click.argument("pattern", required=False)
@form_options
def list_(kind: str | None, pattern: str | None, form: RowFormat | None) -> None:
    """List what there is: an overview, or a sentence for each thing of one kind.

    PATTERN keeps those whose name it is part of, or fits with * and ?, such as 'rotated-*'.
    """
    if kind is None:
        if form is None:
            _print_overview()
        else:
            print_rows(Table.of(row for k in KINDS for row in _rows(k, entries(k))), form)
        return
    check(len(pattern or "") <= LONGEST, "pattern", pattern, f"of {LONGEST} characters at most")
    if kind not in KINDS:
        raise UsageError(f"kind: {kind!r} is not known; {nearest(kind, KINDS)}")
    sentences = _matching(kind, pattern)
    if form is not None:
        print_rows(Table.of(_rows(kind, sentences)), form)
    elif kind == "experiments":
        _print_experiments(sentences)
    else:
        _print_sentences(sentences, {name: times(name) for name in sentences if kind == "papers"})


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
    group = {name: group for group, names in comparisons().items() for name in names}
    for name, text in sentences.items():
        comparison = group[name] if kind == "experiments" else None
        yield {"kind": kind, "name": name, "comparison": comparison, "description": text}


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


def _print_experiments(sentences: Mapping[str, str]) -> None:
    """The experiments of each comparison under its name."""
    for group, names in comparisons().items():
        shown = {name: sentences[name] for name in names if name in sentences}
        if shown:
            click.secho(f"{group}: all of them by `umbel compare {group}`", bold=True)
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
