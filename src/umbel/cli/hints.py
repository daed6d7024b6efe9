"""Advice for options and commands that do not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import click

from umbel.checks import closest
from umbel.help.synonyms import synonym

EXTRA = re.compile(r"unexpected extra argument \((\S+=\S*)\)")


def hint_for(error: click.ClickException, words: Sequence[str]) -> str | None:
    """Return advice if the words of a command have a setting in place of an option."""
    context = getattr(error, "ctx", None)
    if context is None:
        return None
    options = [name for parameter in context.command.params for name in parameter.opts]
    extra = EXTRA.search(error.format_message())
    if extra and "--set" in options:
        return f"write --set {extra[1]}"
    if not isinstance(error, click.NoSuchOption):
        return None
    name, value = error.option_name, _value(error.option_name, words)
    if other := synonym(name, options):
        return f"write {other} {value}"
    if "--set" in options:
        from umbel.experiment.setting_paths import path_of_setting  # which loads PyTorch

        if path := path_of_setting(name.lstrip("-").replace("-", "_")):
            return f"write --set {path}={value}"
    others = ", ".join(_commands_with(name, context))
    return f"an option of {others}" if others else None


def _commands_with(option: str, context: click.Context) -> Iterator[str]:
    """The commands beside this one that have an option."""
    group = context.parent.command if context.parent else None
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command and any(option in parameter.opts for parameter in command.params):
            yield f"`umbel {name}`"


def no_such_command(name: str, known: Sequence[str]) -> str:
    """The message for a command that there is not."""
    close = closest(name, [*known, "--help"])
    return f"No such command {name!r}" + (f"; did you mean {close}?" if close else "")


def _value(option: str, words: Sequence[str]) -> str:
    """Return the value that was written for an option."""
    for place, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and place + 1 < len(words) and not words[place + 1].startswith("--"):
            return words[place + 1]
    return "VALUE"
