"""How the runs of a comparison are made again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from umbel.checks import command
from umbel.folder.how_to_continue import Way, way_of
from umbel.report.html.markup import Markup, Part, element
from umbel.report.html.page import made_with
from umbel.result.outcomes import Methods, is_control
from umbel.result.run import Result

SAID: Mapping[Way, str] = {
    "files": "For a single run, save its text as a file and use umbel run FILE --seed N:",
    "python": "Runs made in Python: run.save of the same umbel.Run, with these settings, makes "
    "them again:",
    "flower": "Runs over Flower: the same flwr run, with these settings and sites, makes them "
    "again:",
}
"""How the runs are made again whose settings follow."""


def again(name: str, methods: Methods) -> Iterator[Part]:
    """The command of the whole comparison, and the settings of each method's runs."""
    runs = [run for _, seeded in methods for run in seeded]
    ways = {run.folder.path: way_of(run.folder.path) for run in runs}
    if {*ways.values()} == {"files"}:
        yield from _compared(name, runs)
    for session in runs[0].folder.sessions.read()[:1]:
        yield element("p", f"Begun: {made_with(session)}", class_="quiet")
    for way, said in SAID.items():
        settings = [
            _unfolded(method, alike)
            for method, seeded in methods
            for alike in _alike([run for run in seeded if ways[run.folder.path] == way])
        ]
        if settings:
            yield element("p", said)
        yield from settings


def _compared(name: str, runs: Sequence[Result]) -> Iterator[Part]:
    seeds = sorted({run.experiment.seed for run in runs})
    if seeds != list(range(seeds[0], seeds[0] + len(seeds))):
        return  # `umbel compare` takes a first seed, and those that follow it
    first = ("--first-seed", seeds[0]) if seeds[0] else ()
    control = ("--control",) if any(map(is_control, runs)) else ()
    yield element(
        "p", "If umbel compare made these runs, this makes them again, with the same --set:"
    )
    said = command("compare", name, "--seeds", len(seeds), *first, *control)
    yield element("pre", said, id="command")
    yield element("button", "copy the command", type="button", class_="copy", data_copy="command")


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


def _unfolded(method: str, runs: Sequence[Result]) -> Markup:
    """The settings of runs that differ in their seed alone, to be unfolded."""
    seeds = ", ".join(str(run.experiment.seed) for run in runs)
    title = f"{method}: {'seed' if len(runs) == 1 else 'seeds'} {seeds}"
    return element("details", element("summary", title), element("pre", runs[0].folder.toml))
