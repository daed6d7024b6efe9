"""A run that goes on, as far as the files in its folder tell, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from rich.table import Table

from umbel.folder.clients_file import by_cluster
from umbel.folder.how_to_continue import names_on_the_roll
from umbel.report.terminal.progress import RECENT, in_units
from umbel.report.terminal.results import MOST_CLUSTERS, one_line
from umbel.report.terminal.tables import row
from umbel.result.run import Result
from umbel.run.records import Record
from umbel.summary import counted, few

FEWEST_SEEN = 3
"""Number of rounds to be seen to end before their pace is taken from the clock."""


class Pace:
    """How long rounds take: by the clock if some were seen to end, otherwise by their records."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []  # when there were how many rounds

    def note(self, now: float, done: int) -> None:
        """Note how many rounds are done at a time in seconds, from any moment on."""
        if self.seen and done < self.seen[-1][1]:  # resumed from an earlier round
            self.seen = []
        # Before the first round ends, a run starts up.
        if done and (not self.seen or done > self.seen[-1][1]):
            self.seen = [*self.seen[-RECENT:], (now, done)]

    def seconds(self, records: Sequence[Record]) -> float:
        """Seconds a round, with evaluation if the clock tells."""
        (began, first), (now, last) = self.seen[0], self.seen[-1]
        if last - first >= FEWEST_SEEN:
            return (now - began) / (last - first)
        return median(record.seconds for record in records[-RECENT:])


def state_of_run(run: Result, pace: Pace) -> Table:
    """What there is to say of a run now: a row for each thing, its name and its value."""
    records, rounds = run.records, run.experiment.planned_rounds
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    row(table, "run", f"{run.folder.path}: {_how_it_is(run)}")
    row(table, "rounds", f"{len(records)} {f'of {rounds}' if rounds else 'so far'}")
    if not records:
        return table
    last, judged = records[-1], run.so_far
    if quality := judged.quality():
        row(table, "so far", f"{', '.join(quality)}, after round {judged.round + 1}")
    for name, said in absent(last, names_on_the_roll(run.folder.path)):
        row(table, name, f"{said} in round {last.round + 1}")
    for name, value in alarms(last):
        row(table, name, value)
    if not run.finished:
        seconds = pace.seconds(records)
        row(table, "a round", f"{seconds:.3g} s")
        if rounds is not None:
            row(table, "time left", in_units(seconds * (rounds - len(records))))
    largest = by_cluster(run.clients)
    for each in largest[:MOST_CLUSTERS]:
        members = few([client.name for client in each])
        row(table, f"cluster {each[0].cluster}", f"{counted(len(each), 'client')}: {members}")
    if len(largest) > MOST_CLUSTERS:
        row(table, "...", counted(len(largest) - MOST_CLUSTERS, "more cluster"))
    return table


def line_of_round(record: Record, rounds: int | None, names: Sequence[str]) -> str:
    """A round as a plain line, with who was absent."""
    more = [f"{name} {said}" for name, said in (*absent(record, names), *alarms(record))]
    return "  ".join([one_line(record, rounds), *more, f"{record.seconds:.3g} s"])


def absent(record: Record, names: Sequence[str]) -> list[tuple[str, str]]:
    """The clients that gave no answer in a round, and those of an answer that was not used."""

    def said(clients: Iterable[int]) -> str:
        known = [names[client] if client < len(names) else str(client) for client in clients]
        return f"{counted(len(known), 'client')}: {few(known)}"

    groups = {"missing": record.missing, "refused": tuple(record.refused)}
    return [(name, said(clients)) for name, clients in groups.items() if clients]


def alarms(record: Record) -> list[tuple[str, str]]:
    """What a record says about drift, if it says anything."""
    values = {**vars(record), **record.measures}
    return [(name, str(value)) for name, value in values.items() if "drift" in name and value]


def _how_it_is(run: Result) -> str:
    stop = run.folder.stop
    if stop is not None:
        return f"stopped after {counted(stop.rounds, 'round')}: {stop.why}"
    return "finished" if run.finished else "goes on" if run.records else "before its first round"
