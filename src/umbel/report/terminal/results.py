"""Records as tables for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import floor

from rich.table import Table

from umbel.checks import printable
from umbel.folder.clients_file import Client, by_cluster
from umbel.newcomers.assignment import Assignment
from umbel.report import over_time
from umbel.report.clients import not_served_apart
from umbel.report.terminal.tables import Columns, add_columns, fitting, folded, frameless, row
from umbel.result.outcomes import (
    Methods,
    by_method,
    mean_text,
    megabytes_text,
    over_seeds,
    spread_text,
    uneven,
)
from umbel.result.run import Result
from umbel.run.metrics import names_of
from umbel.run.records import EVALUATION, NO_CLIENTS, Record
from umbel.server.cluster_count import ClusterCount
from umbel.summary import counted, few, in_a_row, number_text, scaled_text

NO_ANSWER = "no answer"

MOST_SCORES, BEST_SCORES = 6, 3
"""Largest number of clusters whose scores all fit beside a newcomer, and how many else."""

BAR = 40
"""Length of the longest bar in characters: a line with it fits 80 columns."""

MOST_CLUSTERS, MOST_ABSENT = 20, 10
"""Rows of the tables of clusters and of absent clients, which stay short for large federations."""


def results(runs: Sequence[Result]) -> list[Table]:
    """The results of methods: the comparison, and tables of further metrics."""
    return [comparison(runs), *metrics(runs), *_over_time(runs)]


def steps(run: Result) -> Table:
    """A row for each step of time."""
    caption = "; ".join(filter(None, [over_time.CAPTION, over_time.said(run)]))
    table = frameless(*over_time.HEADS, caption=caption)
    for cells in over_time.steps(run):
        row(table, *cells)
    return table


def _over_time(runs: Sequence[Result]) -> list[Table]:
    """How methods followed drifts, one row per method; [] without time."""
    methods = by_method(runs)
    return _of_columns(methods, over_time.followed(methods))


def _of_columns(methods: Methods, columns: Columns) -> list[Table]:
    """Tables with a row per method and these columns, as many in each as fit."""
    tables = []
    for some in fitting(columns):
        table = frameless("method")
        add_columns(table, some)
        for number, (name, _) in enumerate(methods):
            row(table, name, *(cells[number] for _, cells in some))
        tables.append(table)
    return tables


def comparison(runs: Sequence[Result]) -> Table:
    """One row per method, averaged over its seeds, the best last; fits 80 columns.

    Where methods have different numbers of seeds, a column says how many. Agreement
    with planted groups is left out where nobody knows them; for metrics other than loss and
    accuracy, see `metrics`.

    Best is the highest accuracy, or for regression, which has none, the lowest loss.
    """
    methods = by_method(runs)
    counts, by_loss = uneven(methods), all(run.by_loss for run in runs)
    table = frameless(caption=_caption(methods, by_loss))
    table.collapse_padding = True
    table.add_column("method", overflow="fold")
    if counts:
        table.add_column("seeds", justify="right", no_wrap=True)
    qualities = ["loss"] if by_loss else ["accuracy", "worst"]
    planted = any(run.last.ari is not None for run in runs)
    agreement = ["ARI", "purity"] if planted else []
    for name in (*qualities, *agreement, "K", "MB\ndown", "MB\nup", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, seeded in methods:
        last = [run.so_far if run.finished else run.last for run in seeded]
        accuracy = spread_text([r.accuracy for r in last], 3)
        worst = mean_text([r.worst for r in last], 2)
        ari, purity = spread_text([r.ari for r in last], 2), mean_text([r.purity for r in last], 2)
        row(
            table,
            name,
            *([str(len(seeded))] if counts else []),
            *([spread_text([r.loss for r in last], 4, True)] if by_loss else [accuracy, worst]),
            *([ari, purity] if planted else []),
            mean_text([r.num_clusters for r in last], 1),
            megabytes_text([run.megabytes_down for run in seeded]),
            megabytes_text([run.megabytes_up for run in seeded]),
            mean_text([run.seconds for run in seeded], 1),
        )
    return table


def _caption(methods: Methods, by_loss: bool) -> str:
    quality = (
        "loss: mean over clients of each one's test loss"
        if by_loss
        else "accuracy: mean over clients of each one's test accuracy; worst: of the worst client"
    )
    seeds, absent = over_seeds(methods), _set_aside(methods)
    together = ", ".join(n for n, runs in methods if any(not_served_apart(r.last) for r in runs))
    lengths = {len(run.records) for _, runs in methods for run in runs}
    return (
        f"{quality}; K: clusters found; MB: to and from each client in the whole run; "
        "s: seconds of a run"
        + (f"; {seeds}" if seeds else "")
        + (f"; runs of {min(lengths)} to {max(lengths)} rounds" if len(lengths) > 1 else "")
        + (f"; clusters that share models so far: {together}" if together else "")
        + (f"; without clients whose evaluation was set aside: {absent}" if absent else "")
    )


def _set_aside(methods: Methods) -> str:
    """The number of clients without a valid answer in each method's last accuracy."""
    counts = {name: max(_num_set_aside(run.last) for run in runs) for name, runs in methods}
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def _num_set_aside(record: Record) -> int:
    return sum(EVALUATION in why for why in record.refused.values())


def metrics(runs: Sequence[Result]) -> list[Table]:
    """Measures besides loss and accuracy, one row per method; each table fits 80 columns."""
    names = list(dict.fromkeys(name for run in runs for name in names_of(run.experiment)))
    methods, columns = by_method(runs), []
    for name in names:
        values = [[run.so_far.measures.get(name) for run in seeded] for _, seeded in methods]
        columns.append((name, [spread_text(each, 3, True) for each in values]))
    return _of_columns(methods, columns)


def assignment(assigned: Assignment) -> Table:
    """Each newcomer's cluster, and its scores of all, or of the best three of many clusters."""
    caption = f"score: {printable(assigned.meaning)}; the lowest wins"
    if assigned.confidence is not None:
        caption += f"\nconfidence: that {assigned.sure_of}"
    table = frameless("client", "cluster", caption=caption)
    num_clusters = assigned.scores.shape[1]
    few = num_clusters <= MOST_SCORES
    shown = num_clusters if few else BEST_SCORES
    if assigned.confidence is not None:
        table.add_column("confidence", justify="right")
    for column in range(shown):
        table.add_column(f"score of {column}" if few else f"best {column + 1}", justify="right")
    sure = [None] * len(assigned.clients) if assigned.confidence is None else assigned.confidence
    placed = assigned.clusters.items()
    for (name, cluster), scores, likely in zip(placed, assigned.scores, sure, strict=True):
        order = scores.argsort(stable=True)[:shown].tolist()
        cells = [f"{k}: {float(scores[k]):.4g}" for k in order]
        cells = [f"{float(score):.4g}" for score in scores] if few else cells
        told = [] if likely is None else [_at_least(float(likely), num_clusters)]
        row(table, name, str(cluster), *told, *cells)
    return table


def _at_least(likely: float, num_clusters: int) -> str:
    """A confidence in whole percents, rounded down: among several clusters none is certain."""
    sure = likely > 0.99 and num_clusters > 1
    return "> 99%" if sure else f"{floor(100 * likely + 1e-9)}%"


def unlike(assigned: Assignment) -> str:
    """The newcomers that fit every cluster worse than each of the run's clients fits its own."""
    told = few([f"{name} ({loss:.3g})" for name, loss in assigned.unlike.items()])
    least, most = assigned.run_losses or (0.0, 0.0)
    return (
        f"These newcomers fit their cluster's model worse than all clients of the run do: {told}; "
        f"losses of the run's own clients are {least:.3g} to {most:.3g}. They may be of a kind "
        "that the run has not seen."
    )


def cluster_count(count: ClusterCount) -> Table:
    """Singular values as bars, the largest gap, and the estimates besides the verdict."""
    caption = (
        f"other estimates: the largest gap is after {count.rank}; in as many dimensions the elbow "
        f"of k-means is at {count.elbow}, and the gap statistic chooses {count.gap_statistic}"
    )
    table = frameless("", "singular value", "", caption=caption)
    largest = float(count.singular_values[0]) or 1.0
    for number, value in enumerate(count.singular_values, start=1):
        gap = "  ◀ largest gap below" if number == count.rank else ""
        bar = "█" * round(BAR * float(value) / largest)
        row(table, str(number), f"{float(value):.4g}", bar + gap)
    return table


def run_table(
    record: Record,
    metrics: Sequence[str] = (),
    more: Mapping[str, float] = NO_CLIENTS,
    clients: Sequence[Client] = (),
    rounds: int | None = None,
) -> Table:
    """The results of a run, one line for each known one; its `metrics`, and more by name.

    Lines say how many of the `clients` were judged, and after which of the `rounds`, if not all.
    """
    done = record.round + 1
    table, judged = Table(show_header=False), sum(client.loss is not None for client in clients)
    values: Mapping[str, object] = {
        "rounds": rounds or done,
        "evaluated after round": done if done < (rounds or done) else None,
        "clients judged": f"{judged} of {len(clients)}" if judged < len(clients) else None,
        "accuracy, mean over clients": number_text(record.accuracy, 4),
        "accuracy, worst client": number_text(record.worst, 4),
        "accuracy, std over clients": number_text(record.accuracy_std, 4),
        "accuracy, mean over examples": number_text(record.weighted_accuracy, 4),
        "loss": scaled_text(record.loss, 4),
        **{name: scaled_text(record.measures.get(name), 4) for name in metrics},
        "accuracy before fine-tuning": number_text(record.measures.get("untuned_accuracy"), 4),
        "loss before fine-tuning": scaled_text(record.measures.get("untuned_loss"), 4),
        "share of clients that fine-tuned": number_text(record.measures.get("tuned_share"), 2),
        "accuracy on validation examples": number_text(record.validation_accuracy, 4),
        "loss on validation examples": scaled_text(record.validation_loss, 4),
        "clusters": record.num_clusters,
        "models": None if record.num_models == record.num_clusters else record.num_models,
        "ARI": number_text(record.ari, 3),
        "purity": number_text(record.purity, 3),
        "NMI": number_text(record.nmi, 3),
        **{n: (scaled_text if "loss" in n else number_text)(v, 4) for n, v in more.items()},
    }
    for name, value in values.items():
        if value is not None and value != "-":
            row(table, name, str(value))
    return table


def clusters(clients: Sequence[Client]) -> Table:
    """The clients of each cluster, the largest cluster first.

    A cluster's accuracy is the mean over its clients; for regression, which has none, its loss.
    """
    by_loss = all(client.accuracy is None for client in clients)
    measure = "loss" if by_loss else "accuracy"
    table = Table(*folded(("cluster", "clients", "examples", measure, "planted groups", "members")))
    largest = by_cluster(clients)
    for each in largest[:MOST_CLUSTERS]:
        values = [client.loss if by_loss else client.accuracy for client in each]
        names = [client.name for client in each]
        row(
            table,
            str(each[0].cluster),
            str(len(each)),
            str(sum(client.examples or 0 for client in each)),
            mean_text(values, 4 if by_loss else 3, by_loss),
            in_a_row(sorted({client.group for client in each})) or "-",
            in_a_row(names[:12]) + (", ..." if len(names) > 12 else ""),
        )
    if len(largest) > MOST_CLUSTERS:
        row(table, "...", counted(len(largest) - MOST_CLUSTERS, "more cluster"))
    return table


def absences(records: Sequence[Record], names: Sequence[str]) -> Table | None:
    """Clients with their numbers of missing and refused rounds, the most first; None if none.

    Without their names, as before most runs are finished, clients are known by their numbers.
    """
    reasons: dict[int, Counter[str]] = {}
    for record in records:
        why = {**dict.fromkeys(record.missing, NO_ANSWER), **record.refused}
        for client, reason in why.items():
            reasons.setdefault(client, Counter())[reason] += 1
    if not reasons:
        return None
    heads = ("absent client", "rounds missing", "rounds refused", "most frequent reason")
    table = Table(*folded(heads))
    absent = sorted(reasons.items(), key=lambda one: (-one[1].total(), one[0]))
    for client, why_absent in absent[:MOST_ABSENT]:
        name = names[client] if client < len(names) else str(client)
        missing = why_absent[NO_ANSWER]
        refused = why_absent.total() - missing
        row(table, name, str(missing), str(refused), why_absent.most_common(1)[0][0])
    rounds = sum(bool(record.missing or record.refused) for record in records)
    who = counted(len(absent), "client") + (" was" if len(absent) == 1 else " were")
    table.caption = f"{who} absent at times, in {rounds} of {counted(len(records), 'round')}"
    table.caption_justify = "left"
    if len(absent) > MOST_ABSENT:
        row(table, "...", "", "", counted(len(absent) - MOST_ABSENT, "more client"))
    return table


def one_line(record: Record, rounds: int | None) -> str:
    """A round as text, for terminals and logs; `rounds` is None if their number is not known."""
    parts = [f"round {record.round + 1}" + (f"/{rounds}" if rounds else "")]
    parts += record.quality()
    if record.num_clusters is not None:
        parts.append(f"clusters {record.num_clusters}")
    if record.ari is not None:
        parts.append(f"ARI {number_text(record.ari, 2)}")
    if record.num_absent:
        parts.append(f"absent {record.num_absent}")
    return "  ".join(parts)
