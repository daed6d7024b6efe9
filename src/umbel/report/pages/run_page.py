"""The report of one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from umbel.checks import command
from umbel.folder.clients_file import Client, by_cluster
from umbel.folder.how_to_continue import way_of
from umbel.report import by_round as rounds
from umbel.report import clients, over_time, quarantine
from umbel.report.clients import not_served_apart
from umbel.report.clustering_evidence import grounds
from umbel.report.figures.panels import Panel
from umbel.report.pages.rendering import made_with, page
from umbel.result.outcomes import mean_text
from umbel.result.run import Result
from umbel.result.statistics.agreement import agreement
from umbel.result.statistics.baselines import Baselines
from umbel.result.statistics.fairness import fairness
from umbel.run.records import MEGABYTE
from umbel.run.stopping import exact
from umbel.summary import counted, in_a_row, number_text, scaled_text, three_digits

MOST_ROWS = 100
"""Rows of the table of clusters."""


def run_page(run: Result) -> tuple[str, list[Panel]]:
    """The page, and the figures in it."""
    quality, cost = list(rounds.quality(run)), list(rounds.cost(run))
    of_clients = [each for each in (clients.cluster_map(run), clients.fortunes(run)) if each]
    flow = over_time.panels(run)
    reasons, absences, moves = list(grounds(run)), rounds.absences(run), rounds.moves(run)
    suspicion = quarantine.evidence(run)
    stop, budget = run.folder.stop, run.folder.budget
    by_goal = stop is not None and budget.reached(run.last) == stop.why
    goals = [f"{name}={exact(goal)}" for name, goal in budget.until] if by_goal else []
    text = page(
        "run.html",
        f"{run.experiment.name}, seed {run.experiment.seed}",
        run=run,
        way=way_of(run.folder.path),
        evaluated=any(record.judged("loss") is not None for record in run.records),
        headline=list(_headline(run)),
        quality=quality,
        of_clients=of_clients,
        flow=flow,
        steps=(over_time.HEADS, over_time.steps(run)),
        drifts=over_time.said(run),
        clusters=_clusters(run),
        more_clusters=len(by_cluster(run.clients)) - MOST_ROWS,
        clients=_clients(run),
        reasons=reasons,
        suspicion=suspicion,
        suspects=quarantine.HEADS,
        cost=cost,
        moves=moves,
        latest_moves=rounds.latest_moves(run),
        absences=absences,
        absent=rounds.absent_most(run),
        goals=goals,
        again=_again(run, goals),
        sessions=list(map(made_with, run.folder.sessions.read())),
    )
    others = [each for each in (suspicion and suspicion[0], moves, absences) if each]
    return text, [*quality, *flow, *of_clients, *reasons, *cost, *others]


def _headline(run: Result) -> Iterator[tuple[str, str, str]]:
    """Names, values, and further remarks."""
    last, worst = run.last_evaluated, next(iter(clients.worst_first(run)), None)
    named = worst is not None and (worst.accuracy if not run.by_loss else worst.loss) is not None
    whose = f"client {worst.name}" if named and worst is not None else "over all clients"
    tested = last.loss is not None or last.validation_loss is None
    on = f"mean over clients, on their {'test' if tested else 'validation'} examples"
    measure, digits = ("loss", 4) if run.by_loss else ("accuracy", 3)
    value: float | None = getattr(last, measure) if tested else last.judged(measure)
    if value is not None:
        yield measure.capitalize(), number_text(value, digits), on
    if last.worst is not None:
        yield "Worst client", number_text(last.worst, 3), whose
    elif run.by_loss and named and worst is not None:
        yield "Worst client's loss", number_text(worst.loss, 4), whose
    # Before its first checkpoint, a run's clients are not known.
    of_all = f"of {counted(len(run.clients), 'client')}" if run.clients else ""
    more = (of_all + not_served_apart(last)).removeprefix(", ")
    yield "Clusters", number_text(last.num_clusters, 0), more
    if run.has_groups:
        yield "ARI", number_text(last.ari, 2), f"purity {number_text(last.purity, 2)}; 1 is perfect"
    even = fairness(run, Baselines({}))
    if even.worst_tenth is not None:
        more = f"mean {measure} of the tenth that fare worst"
        yield "Worst tenth of clients", number_text(even.worst_tenth, digits), more
    if "tuned_share" in last.measures:
        before = f"{number_text(last.measures.get(f'untuned_{measure}'), digits)} without"
        yield "Fine-tuned", f"{last.measures['tuned_share'] or 0:.0%} of clients", before
    said = "agreement of clusters; 0 is that of chance"
    for name, value in agreement(run.clients).items():
        yield f"AMI with {name}", number_text(value, 2), said
    down = sum(record.bytes_down for record in run.records) / MEGABYTE
    up = sum(record.bytes_up for record in run.records) / MEGABYTE
    yield (
        "Traffic",
        f"{three_digits(down + up)} MB",
        f"{three_digits(down)} to clients, {three_digits(up)} from them",
    )
    rounds_done = counted(len(run.records), "round")
    yield "Time", f"{three_digits(run.seconds)} s", f"{rounds_done}, without evaluation"


def _clusters(run: Result) -> tuple[list[str], list[list[str]]]:
    """A table of the largest clusters."""
    heads = ["cluster", "clients", "training examples"]
    heads += [f"mean test {'loss' if run.by_loss else 'accuracy'}"] if run.finished else []
    heads += ["planted groups"] if run.has_groups and run.finished else []
    several = by_cluster(run.clients)[:MOST_ROWS]
    return heads, [_cluster_row(run, each)[: len(heads)] for each in several]


def _clients(run: Result) -> tuple[list[str], list[list[str]]]:
    """A table of all clients, the worst first, without empty columns."""
    heads = [
        "client",
        "cluster",
        "planted group",
        "training examples",
        "test accuracy",
        "test loss",
        "epochs of tuning",
        "untuned accuracy",
        "untuned loss",
        "test examples",
    ]
    names = list(dict.fromkeys(name for client in run.clients for name in client.attributes))
    heads += names
    rows = [_row(client, names) for client in clients.worst_first(run)]
    dropped = {place for place, _ in enumerate(heads) if not any(row[place] for row in rows)}
    heads = [head for place, head in enumerate(heads) if place not in dropped]
    rows = [[cell for place, cell in enumerate(row) if place not in dropped] for row in rows]
    return heads, rows


def _row(client: Client, attributes: Sequence[str]) -> list[str]:
    return [
        client.name,
        str(client.cluster),
        client.group,
        "" if client.examples is None else str(client.examples),
        "" if client.accuracy is None else f"{client.accuracy:.4f}",
        "" if client.loss is None else scaled_text(client.loss, 4),
        "" if client.tuned_epochs is None else str(client.tuned_epochs),
        "" if client.untuned_accuracy is None else f"{client.untuned_accuracy:.4f}",
        "" if client.untuned_loss is None else scaled_text(client.untuned_loss, 4),
        "" if client.test_examples is None else str(client.test_examples),
        *(client.attributes.get(name, "") for name in attributes),
    ]


def _cluster_row(run: Result, members: Sequence[Client]) -> list[str]:
    values = [c.loss if run.by_loss else c.accuracy for c in members]
    return [
        str(members[0].cluster),
        str(len(members)),
        str(sum(c.examples or 0 for c in members)) if run.finished else "not known yet",
        mean_text(values, 4, run.by_loss),
        in_a_row(sorted({client.group for client in members})),
    ]


def _again(run: Result, goals: Sequence[str]) -> str:
    """What makes the run again, in Python or as a command."""
    if way_of(run.folder.path) == "python":
        until = f", until={list(goals)}" if goals else ""
        name = run.folder.path.resolve().name
        return f'run.save("{name}", rounds={run.experiment.rounds!r}{until})'
    until_options = (word for goal in goals for word in ("--until", goal))
    return command("run", "experiment.toml", *until_options)
