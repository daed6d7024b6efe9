"""The evidence against suspicious clients in a run with `limits.quarantine`."""

from __future__ import annotations

from math import ceil

import numpy as np

from umbel.report.by_round import names_of_clients
from umbel.report.figures.charts import Chart, Line
from umbel.report.figures.panels import Panel
from umbel.result.run import Result
from umbel.summary import counted, number_text

MOST_NAMED, MOST_GREY = 16, 40
"""Most clients with a line and a name each, and most others with a line."""

MOST_POINTS = 200
"""Most points of a line: each is then the largest of several rounds."""

MOST_ROWS = 100
"""Rows of the table of those that were set aside."""

HEADS = ("client", "rounds set aside", "first", "last", "largest suspicion", "now", "still")


def evidence(run: Result) -> tuple[Panel, list[list[str]], int] | None:
    """Suspicion by round, rows of `HEADS`, and the number of clients that were set aside.

    None if nobody was watched.
    """
    limit = run.experiment.limits.quarantine
    records = [record for record in run.records if record.suspicion is not None]
    if limit is None or not records:
        return None
    values = np.full((len(records), max(len(r.suspicion or ()) for r in records)), np.nan)
    for row, record in zip(values, records, strict=True):  # over Flower there may be more and more
        row[: len(record.suspicion or ())] = np.array(record.suspicion, dtype=np.float64)
    peaks = np.fmax.reduce(values).tolist()
    rounds: dict[int, list[int]] = {}  # those in which a client was set aside
    for record in records:
        for client in record.quarantined:
            rounds.setdefault(client, []).append(record.round + 1)
    every = range(values.shape[1])
    order = sorted(every, key=lambda n: (-len(rounds.get(n, ())), -np.nan_to_num(peaks[n])))

    coloured = order[: min(len(rounds), MOST_NAMED)]
    grey = order[len(coloured) :][:MOST_GREY]
    rest = order[len(coloured) + len(grey) :]
    names = names_of_clients(run)

    # Lines of the most suspicious clients, in colour if they were set aside, and a band of others.
    step = ceil(len(records) / MOST_POINTS)
    starts = range(0, len(records), step)
    x = tuple(float(records[min(at + step, len(records)) - 1].round + 1) for at in starts)
    highest = np.fmax.reduceat(values, starts)
    lines = [
        Line(names.get(n, str(n)), x, tuple(highest[:, n].tolist()), muted=n in grey)
        for n in [*grey, *coloured]
    ]
    if rest:
        low = np.fmin.reduceat(np.fmin.reduce(values[:, rest], axis=1), starts)
        ends = [tuple(each.tolist()) for each in (low, np.fmax.reduce(highest[:, rest], axis=1))]
        lines.insert(0, Line("all others", x, ends[1], *ends, muted=True))
    note = f"In colour: {len(coloured)} of {counted(len(rounds), 'client')} that were set aside. "
    note += f"In grey: {counted(len(grey), 'other client')}"
    note += f", and a band of {counted(len(rest), 'less suspicious one')}." if rest else "."
    note += f" A point is the largest value of {step} rounds." if step > 1 else ""
    about = ("Suspicion of clients", "round", "suspicion")
    chart = Chart(*about, tuple(lines), from_zero=True, limit=limit)

    rows = []
    for n in order[: min(len(rounds), MOST_ROWS)]:
        last = values[-1, n]
        now = "no longer there" if np.isnan(last) else number_text(float(last), 2)
        still = "yes" if last > limit else "no"
        when = [str(each) for each in (len(rounds[n]), rounds[n][0], rounds[n][-1])]
        rows.append([names.get(n, str(n)), *when, number_text(peaks[n], 2), now, still])
    return Panel(chart, note, wide=True), rows, len(rounds)
