"""The report of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from umbel.checks import command
from umbel.folder.clients_file import Client, by_cluster
from umbel.folder.how_to_continue import Way, way_of
from umbel.report import by_round as rounds
from umbel.report import clients
from umbel.report.clients import not_served_apart
from umbel.report.clustering_evidence import grounds
from umbel.report.figures.panels import Panel
from umbel.report.figures.user_texts import in_a_row
from umbel.report.html.markup import Markup, Part, element, join, table
from umbel.report.html.page import Section, figures, lines, listing, made_with, page
from umbel.result.outcomes import mean_text
from umbel.result.run import Result
from umbel.result.statistics.agreement import agreement
from umbel.result.statistics.baselines import Baselines
from umbel.result.statistics.fairness import fairness
from umbel.run.records import MEGABYTE
from umbel.run.stopping import exact
from umbel.summary import counted, number_text, scaled_text, three_digits

MOST_ROWS = 100
"""Rows of the table of clusters."""

CONTINUES: Mapping[Way, str] = {
    "files": "umbel resume",
    "python": "umbel.resume in Python",
    "flower": "the same flwr run",
}
"""What continues an unfinished run."""


def run_page(run: Result) -> tuple[str, list[Panel]]:
    """The page, and the figures in it."""
    quality, cost = list(rounds.quality(run)), list(rounds.cost(run))
    whole_map, fortunes = clients.cluster_map(run), clients.fortunes(run)
    reasons, absences = list(grounds(run)), rounds.absences(run)
    sections = [Section("Round by round", (figures(quality),))]
    shown = [panel for panel in (whole_map, fortunes) if panel is not None]
    if run.clients:
        sections.append(Section("Clusters and clients", _clients(run, shown)))
    if reasons:
        sections.append(Section("What the clusters rest on", (figures(reasons),)))
    sections.append(Section("Traffic, work and time", (figures(cost),)))
    if absences is not None:
        sections.append(Section("Absent clients", (figures([absences]), _absent(run))))
    sections.append(Section("Run it again", tuple(_again(run))))
    panels = [*quality, *shown, *reasons, *cost, *([absences] if absences else [])]
    title = f"{run.experiment.name}, seed {run.experiment.seed}"
    return page(title, _head(run), sections), panels


def _head(run: Result) -> list[Part]:
    """The settings of the run, its state, and its results."""
    experiment, done = run.experiment, len(run.records)
    parts: list[Part] = []
    if experiment.description:
        parts.append(element("p", experiment.description))
    if not run.finished:
        text = (
            f"This run is not finished: {done} of {experiment.rounds} rounds are done. "
            f"What follows is so far; {CONTINUES[way_of(run.folder.path)]} continues it. "
            "Results of single clients are known at the end."
        )
        if all(record.judged("loss") is None for record in run.records):
            text += " No round was evaluated so far."
        parts.append(element("p", element("strong", text), class_="notice", role="note"))
    elif run.folder.stop is not None:
        text = f"Stopped after {done} of {experiment.rounds} rounds: {run.folder.stop.why}."
        parts.append(element("p", text, class_="notice", role="note"))
    tiles = [
        element(
            "div",
            element("dt", name),
            element(
                "dd", element("div", value, class_="value"), element("div", more, class_="more")
            ),
        )
        for name, value, more in _headline(run)
    ]
    return [*parts, element("dl", *tiles, class_="tiles")]


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
    even = fairness(run, Baselines({}))
    if even.worst_tenth is not None:
        more = f"mean {measure} of the tenth that fare worst"
        yield "Worst tenth of clients", number_text(even.worst_tenth, digits), more
    if "tuned_share" in last.measures:
        before = f"{number_text(last.measures.get(f'untuned_{measure}'), digits)} without"
        yield "Fine-tuned", f"{last.measures['tuned_share'] or 0:.0%} of clients", before
    # Before its first checkpoint, a run's clients are not known.
    of_all = f"of {counted(len(run.clients), 'client')}" if run.clients else ""
    more = (of_all + not_served_apart(last)).removeprefix(", ")
    yield "Clusters", number_text(last.num_clusters, 0), more
    if run.has_groups:
        yield "ARI", number_text(last.ari, 2), f"purity {number_text(last.purity, 2)}; 1 is perfect"
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


def _clients(run: Result, panels: Sequence[Panel]) -> tuple[Part, ...]:
    """The figures of clients, a table of clusters, and a table of clients to search."""
    parts: list[Part] = [figures(panels), element("h3", "Every cluster")]
    every = by_cluster(run.clients)
    several = every[:MOST_ROWS]
    heads = ["cluster", "clients", "training examples", *([_what(run)] if run.finished else [])]
    heads += ["planted groups"] if run.has_groups and run.finished else []
    parts.append(table(heads, [_cluster_row(run, each, len(heads)) for each in several]))
    if more := len(every) - len(several):
        parts.append(element("p", f"There are {counted(more, 'more cluster')}."))
    if not run.finished:
        return tuple(parts)
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
    parts.append(element("h3", "Every client, the worst first"))
    parts.append(listing("clients", heads, rows))
    return tuple(parts)


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


def _cluster_row(run: Result, members: Sequence[Client], width: int) -> list[str]:
    values = [c.loss if run.by_loss else c.accuracy for c in members]
    row = [
        str(members[0].cluster),
        str(len(members)),
        str(sum(c.examples or 0 for c in members)) if run.finished else "not known yet",
        mean_text(values, 4, run.by_loss),
        in_a_row(sorted({client.group for client in members})),
    ]
    return [*row[:3], *(row[3:] if run.finished else [])][:width]


def _absent(run: Result) -> Markup:
    heads = ["client", "times missing", "times refused", "why refused last"]
    rows = [[n, str(m), str(r), why] for n, m, r, why in rounds.absent_most(run)]
    return join(element("h3", "Absent most often"), table(heads, rows))


def _again(run: Result) -> Iterator[Part]:
    """The command to repeat the run, and its environment."""
    file, stop = "experiment.toml", run.folder.stop
    budget = run.folder.budget
    by_goal = stop is not None and budget.reached(run.last) == stop.why
    goals = [f"{name}={exact(goal)}" for name, goal in budget.until] if by_goal else []
    way = way_of(run.folder.path)
    if way == "flower":
        yield lines(
            "This run was over Flower: the same flwr run makes it again, with the settings below "
            "and the same sites. On other processors and versions the last digits may differ."
        )
        yield from _settings(run)
        return
    if way == "python":
        what = "in Python the same umbel.Run, whose settings are below, this line"
        until = f", until={goals}" if goals else ""
        again = f'"{run.folder.path.resolve().name}", rounds={run.experiment.rounds}{until}'
        said = f"run.save({again})"
    else:
        what = f"with the text below in a file {file}, this command"
        said = command("run", file, *(word for goal in goals for word in ("--until", goal)))
    yield lines(
        f"With the same versions, and {what} makes the same run. On other processors and "
        "versions the last digits may differ."
    )
    if stop is not None and not goals:
        yield element("p", f"It does all {run.experiment.rounds} rounds; this run was stopped.")
    yield element("pre", said, id="command")
    yield element("button", "copy the command", type="button", class_="copy", data_copy="command")
    yield from _settings(run)


def _settings(run: Result) -> Iterator[Part]:
    """The experiment, to be unfolded and copied, and what the run was made with."""
    inside, file = element("pre", run.folder.toml, id="experiment"), "experiment.toml"
    yield element("details", element("summary", f"{file}: all settings"), inside)
    yield element("button", f"copy {file}", type="button", class_="copy", data_copy="experiment")
    yield element("h3", "Made with")
    yield element(
        "ul", *(element("li", made_with(session)) for session in run.folder.sessions.read())
    )


def _what(run: Result) -> str:
    return "mean test loss" if run.by_loss else "mean test accuracy"
