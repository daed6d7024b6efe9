"""Figures of a run round by round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from umbel.report.charts import Chart, Line
from umbel.report.panels import Panel
from umbel.report.reading import Known
from umbel.runs.outcomes import MEGABYTE
from umbel.runs.records import Record

Measure = Callable[[Record], float | None]


def course(known: Known, name: str, measure: Measure, spread: Measure | None = None) -> Line:
    """A measure after each round in which it was taken, with a band of its spread on both sides."""
    found = [(r.round + 1, measure(r), spread(r) if spread else None) for r in known.records]
    taken = [(x, y, wide) for x, y, wide in found if y is not None]
    rounds, values = tuple(float(x) for x, _, _ in taken), tuple(y for _, y, _ in taken)
    if spread is None:
        return Line(name, rounds, values)
    low = tuple(max(0.0, y - (wide or 0)) for _, y, wide in taken)
    high = tuple(min(1.0, y + (wide or 0)) for _, y, wide in taken)
    return Line(name, rounds, values, low, high)


def quality(known: Known) -> Iterator[Panel]:
    """How good the models are, and how well the clusters agree with the planted groups."""
    marks = known.marks
    if not known.by_loss:
        mean = course(known, "mean over clients", lambda r: r.accuracy, lambda r: r.accuracy_std)
        worst = course(known, "worst client", lambda r: r.worst)
        chart = Chart("Accuracy", "round", "test accuracy", (mean, worst), marks)
        yield Panel(chart, "Band: the standard deviation over clients on both sides of the mean.")
    loss = course(known, "mean over clients", lambda r: r.loss)
    yield Panel(Chart("Loss", "round", "test loss", (loss,), marks))
    if known.has_groups:
        lines = (course(known, "ARI", lambda r: r.ari), course(known, "purity", lambda r: r.purity))
        chart = Chart("Agreement with the planted groups", "round", "", lines, marks)
        yield Panel(chart, "1 is perfect; small clusters are pure, so purity says little alone.")
    found = course(known, "clusters", lambda r: r.num_clusters)
    yield Panel(Chart("Clusters", "round", "clusters", (found,), marks, from_zero=True))


def cost(known: Known) -> Iterator[Panel]:
    """Traffic and time."""
    down = course(known, "to clients", lambda r: r.bytes_down / MEGABYTE)
    up = course(known, "from clients", lambda r: r.bytes_up / MEGABYTE)
    yield Panel(
        Chart("Traffic", "round", "MB a round", (down, up), known.marks, from_zero=True),
        "All clients together; evaluation is not counted.",
    )
    whole = course(known, "round", lambda r: r.seconds)
    waiting = course(known, "of these, waiting for clients", lambda r: r.client_seconds)
    yield Panel(
        Chart("Time", "round", "seconds a round", (whole, waiting), known.marks, from_zero=True),
        "Without evaluation.",
    )


def absences(known: Known) -> Panel | None:
    """How many clients did not answer, or were refused, in each round; None if all was well."""
    if not any(record.missing or record.refused for record in known.records):
        return None
    missing = course(known, "missing", lambda r: len(r.missing))
    refused = course(known, "refused", lambda r: len(r.refused))
    lines = (missing, refused)
    return Panel(Chart("Absent clients", "round", "clients", lines, known.marks, from_zero=True))


def absent_most(known: Known, limit: int = 20) -> list[tuple[str, int, int, str]]:
    """Who was absent most often: name, times missing, times refused, why last."""
    missing = Counter(c for record in known.records for c in record.missing)
    refused = Counter(c for record in known.records for c in record.refused)
    why = {c: reason for record in known.records for c, reason in record.refused.items()}
    names = {client.number: client.name for client in known.clients}
    most = (missing + refused).most_common(limit)
    return [(names.get(c, str(c)), missing[c], refused[c], why.get(c, "")) for c, _ in most]
