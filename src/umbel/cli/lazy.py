"""A group of commands that loads the module of a command only when it is called."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from umbel.cli.hints import no_such_command


@dataclass(frozen=True)
class CommandPlace:
    """The module of a command, and its line in the list of commands."""

    module: str
    attribute: str
    help: str


class LazyGroup(click.Group):
    """Lists its commands without loading them."""

    def __init__(self, *args: Any, places: Mapping[str, CommandPlace], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.places = places

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*self.places]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        place = self.places.get(cmd_name)
        if place is None:
            return None
        return with_verbose(getattr(import_module(place.module), place.attribute))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.places and not args[0].startswith("-"):
            raise click.UsageError(no_such_command(args[0], self.list_commands(ctx)), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            names = self.list_commands(ctx)
            formatter.write_dl([(name, self.places[name].help) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=self.places[name].help) for name in names]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


def with_verbose(command: click.Command) -> click.Command:
    """Add the option -v to a command, or to all commands of a group."""
    talking = copy(command)
    talking.params = [*command.params, _verbose()]
    if isinstance(command, click.Group) and isinstance(talking, click.Group):
        talking.commands = {name: with_verbose(c) for name, c in command.commands.items()}
    return talking


def say_more(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:  # noqa: ARG001
    """Turn on the package's log of decisions."""
    if wanted:
        logging.getLogger("umbel").setLevel(logging.INFO)


def _verbose() -> click.Option:
    return click.Option(
        ["-v", "--verbose"],
        is_flag=True,
        expose_value=False,
        callback=say_more,
        help="Explain decisions as they are made.",
    )
