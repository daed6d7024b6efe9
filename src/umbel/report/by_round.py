"""Figures of a run by round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from umbel.folder.how_to_continue import names_on_the_roll
from umbel.report.figures.charts import Chart, Line, Mark
from umbel.report.figures.panels import Panel
from umbel.result.run import Result
from umbel.run.metrics import names_of
from umbel.run.records import MEGABYTE, RoundValue, judged_metric
from umbel.summary import few

MOST_MARKS = 6
"""Changes of the number of models that are marked, for methods that split many times."""

MOST_ABSENT = 20
"""Number of clients in a page's table of absences, which stays short in large federations."""

MOST_MOVES = 20
"""Number of rounds in a page's table of clients that came and left."""


def marks(run: Result) -> tuple[Mark, ...]:
    """The first rounds in which clients were clustered, separated or split, and the last change."""
    turns = _turns(run)[:MOST_MARKS]
    settled = run.last.measures.get("last_change")
    return (*turns, *([Mark(settled + 1, "last change of clusters")] if settled else []))


def _turns(run: Result) -> list[Mark]:
    """Every round in which the number of models changed."""
    turns = []
    for before, after in pairwise(run.records):
        old, new = before.num_models, after.num_models
        if old is not None and new is not None and old != new:
            turns.append(Mark(after.round + 1, f"{old} → {new} models"))
    return turns


def course(run: Result, name: str, measure: RoundValue, spread: RoundValue | None = None) -> Line:
    """A measure after each round in which it was taken, with a band of its spread on both sides."""
    every = [(r.round + 1, measure(r), spread(r) if spread else None) for r in run.records]
    taken = [(x, y, wide) for x, y, wide in every if y is not None]
    rounds, values = tuple(float(x) for x, _, _ in taken), tuple(y for _, y, _ in taken)
    if spread is None:
        return Line(name, rounds, values)
    low = tuple(max(0.0, y - (wide or 0)) for _, y, wide in taken)
    high = tuple(min(1.0, y + (wide or 0)) for _, y, wide in taken)
    return Line(name, rounds, values, low, high)


def quality(run: Result) -> Iterator[Panel]:
    """Quality of the models, if known, and agreement of the clusters with the planted groups."""
    clustered = marks(run)
    split = "validation" if run.validated else "test"
    if run.validated and not run.by_loss:
        mean = course(run, "mean over clients", lambda r: r.judged("accuracy"))
        yield Panel(Chart("Accuracy", "round", "validation accuracy", (mean,), clustered))
    elif not run.by_loss:
        mean = course(run, "mean over clients", lambda r: r.accuracy, lambda r: r.accuracy_std)
        worst = course(run, "worst client", lambda r: r.worst)
        chart = Chart("Accuracy", "round", "test accuracy", (mean, worst), clustered)
        yield Panel(
            chart, "The band is the standard deviation over clients on both sides of the mean."
        )
    loss = course(run, "mean over clients", lambda r: r.judged("loss"))
    if loss.x:
        yield Panel(Chart("Loss", "round", f"{split} loss", (loss,), clustered))
    for name in names_of(run.experiment):
        line = course(run, "mean over clients", judged_metric(name))
        if line.x:
            yield Panel(Chart(name, "round", f"{split} {name}", (line,), clustered))
    if run.has_groups:
        lines = (course(run, "ARI", lambda r: r.ari), course(run, "purity", lambda r: r.purity))
        chart = Chart("Agreement with the planted groups", "round", "", lines, clustered)
        yield Panel(chart, "1 is perfect; small clusters are pure, so purity says little alone.")
    clusters = course(run, "clusters", lambda r: r.num_clusters)
    chart = Chart(
        "Clusters", "round", "clusters", (clusters,), clustered, from_zero=True, counts=True
    )
    turns = len(_turns(run))
    few = f"The number of models changed {turns} times; the first {MOST_MARKS} changes are marked."
    yield Panel(chart, few if turns > MOST_MARKS else "")


def cost(run: Result) -> Iterator[Panel]:
    """Traffic, work and time."""
    down = course(run, "to clients", lambda r: r.bytes_down / MEGABYTE)
    up = course(run, "from clients", lambda r: r.bytes_up / MEGABYTE)
    yield Panel(
        Chart("Traffic", "round", "MB a round", (down, up), marks(run), from_zero=True),
        "All clients together; evaluation is not counted.",
    )
    if any(record.gradient_evaluations is not None for record in run.records):
        gradients = course(run, "gradients", lambda r: r.gradient_evaluations)
        losses = course(run, "losses alone", lambda r: r.loss_evaluations)
        yield Panel(
            Chart("Work", "round", "examples", (gradients, losses), marks(run), from_zero=True),
            "Examples whose gradient, or loss alone, clients found in a round, one for each model "
            "and each pass; evaluation is not counted.",
        )
    whole = course(run, "round", lambda r: r.seconds)
    waiting = course(run, "of these, waiting for clients", lambda r: r.client_seconds)
    finding = course(run, "of these, finding clusters", lambda r: r.clustering_seconds)
    lines = (whole, waiting, finding) if any(finding.y) else (whole, waiting)
    yield Panel(
        Chart("Time", "round", "seconds a round", lines, marks(run), from_zero=True),
        "Without evaluation.",
    )


def absences(run: Result) -> Panel | None:
    """Numbers of missing and refused answers in each round; None if there were none."""
    if not any(record.missing or record.refused for record in run.records):
        return None
    missing = course(run, "missing", lambda r: len(r.missing))
    refused = course(run, "refused", lambda r: len(r.refused))
    lines = (missing, refused)
    about = ("Absent clients", "round", "clients")
    return Panel(Chart(*about, lines, marks(run), from_zero=True, counts=True))


def absent_most(run: Result) -> list[tuple[str, int, int, str]]:
    """The clients absent most often: name, times missing, times refused, last reason."""
    missing = Counter(c for record in run.records for c in record.missing)
    refused = Counter(c for record in run.records for c in record.refused)
    why = {c: reason for record in run.records for c, reason in record.refused.items()}
    names = names_of_clients(run)
    most = (missing + refused).most_common(MOST_ABSENT)
    return [(names.get(c, str(c)), missing[c], refused[c], why.get(c, "")) for c, _ in most]


def moves(run: Result) -> Panel | None:
    """Numbers of clients that came and left before each round; None if nobody did."""
    if not any(record.joined or record.left for record in run.records):
        return None
    joined = course(run, "came", lambda r: len(r.joined or ()))
    left = course(run, "left", lambda r: len(r.left or ()))
    about = ("Clients that came and left", "round", "clients")
    return Panel(Chart(*about, (joined, left), marks(run), from_zero=True, counts=True))


def latest_moves(run: Result) -> list[tuple[int, str, str]]:
    """The latest rounds before which clients came or left: the round, who came, and who left."""
    names = names_of_clients(run)

    def named(clients: Sequence[int] | None) -> str:
        return few([names.get(client, str(client)) for client in clients or ()])

    moved = [record for record in run.records if record.joined or record.left]
    return [(r.round + 1, named(r.joined), named(r.left)) for r in moved[-MOST_MOVES:]]


def names_of_clients(run: Result) -> dict[int, str]:
    """The names of clients by number, if they are known: over Flower, also of those that left."""
    on_the_roll = dict(enumerate(names_on_the_roll(run.folder.path)))
    return on_the_roll or {client.number: client.name for client in run.clients}
