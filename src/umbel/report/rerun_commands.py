"""How the runs of a comparison are made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from umbel.checks import command
from umbel.folder.how_to_continue import Way, way_of
from umbel.report.pages.rendering import made_with
from umbel.result.outcomes import Methods, is_control
from umbel.result.run import Result


@dataclass(frozen=True)
class Again:
    """How runs are made again."""

    command: str  # makes all of them; empty if none does
    begun: str  # when the first began, on which machine and with which versions
    settings: dict[Way, list[tuple[str, str]]]  # titles and experiments as TOML


def again(name: str, methods: Methods) -> Again:
    """The command of the whole comparison, and the settings of each method's runs."""
    runs = [run for _, seeded in methods for run in seeded]
    ways = {run.folder.path: way_of(run.folder.path) for run in runs}
    settings: dict[Way, list[tuple[str, str]]] = {}
    for method, seeded in methods:
        for way in dict.fromkeys(ways.values()):
            for alike in _alike([run for run in seeded if ways[run.folder.path] == way]):
                seeds = ", ".join(str(run.experiment.seed) for run in alike)
                title = f"{method}: {'seed' if len(alike) == 1 else 'seeds'} {seeds}"
                settings.setdefault(way, []).append((title, alike[0].folder.toml))
    whole = _compared(name, runs) if {*ways.values()} == {"files"} else ""
    return Again(whole, "".join(map(made_with, runs[0].folder.sessions.read()[:1])), settings)


def _compared(name: str, runs: Sequence[Result]) -> str:
    seeds = sorted({run.experiment.seed for run in runs})
    if seeds != list(range(seeds[0], seeds[0] + len(seeds))):
        return ""  # `umbel compare` takes a first seed, and those that follow it
    first = ("--first-seed", seeds[0]) if seeds[0] else ()
    control = ("--control",) if any(map(is_control, runs)) else ()
    return command("compare", name, "--seeds", len(seeds), *first, *control)


def _alike(runs: Sequence[Result]) -> list[list[Result]]:
    """The runs, those together that differ in their seed alone: one text makes all of these.

    A control's sizes of clusters differ between seeds, and so do digests of data made in Python.
    """
    parts: list[list[Result]] = []
    for run in runs:
        for part in parts:
            if part[0].experiment.with_seed(run.experiment.seed) == run.experiment:
                part.append(run)
                break
        else:
            parts.append([run])
    return parts
