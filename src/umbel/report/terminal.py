"""Records as tables for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Real

from rich.box import SIMPLE_HEAD
from rich.table import Table

from umbel.checks import check
from umbel.runs.budget import reaches
from umbel.runs.outcomes import Outcome, average, by_method, mean, spread
from umbel.runs.records import Record
from umbel.runs.result import Assignment
from umbel.server.cluster_count import ClusterCount

NO_ANSWER = "no answer"


def comparison(outcomes: Sequence[Outcome]) -> Table:
    """A row a method, averaged over its seeds, the best last; fits 80 columns.

    Agreement with planted groups is left out where nobody knows them.

    Best is the highest accuracy, or for regression, which has none, the lowest loss.
    """
    seeds = len({outcome.seed for outcome in outcomes})
    by_loss = all(outcome.last.accuracy is None for outcome in outcomes)
    quality = (
        "loss: mean over clients of each one's test loss"
        if by_loss
        else "accuracy: mean over clients of each one's test accuracy; worst: of the worst client"
    )
    lengths = {len(outcome.records) for outcome in outcomes}
    caption = (
        f"{quality}; K: clusters found; MB: to and from each client in the whole run; "
        "s: seconds of a run"
        + (f"; mean ± standard deviation over {seeds} seeds" if seeds > 1 else "")
        + (f"; runs of {min(lengths)} to {max(lengths)} rounds" if len(lengths) > 1 else "")
    )
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
        caption=caption,
        caption_justify="left",
    )
    table.add_column("method", overflow="fold")
    qualities = ["loss"] if by_loss else ["accuracy", "worst"]
    planted = any(outcome.last.ari is not None for outcome in outcomes)
    agreement = ["ARI", "purity"] if planted else []
    for name in (*qualities, *agreement, "K", "MB\ndown", "MB\nup", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, runs in by_method(outcomes):
        accuracy = spread([run.last.accuracy for run in runs], 3)
        worst = average([run.last.worst for run in runs], 2)
        loss = spread([run.last.loss for run in runs], 4)
        ari = spread([run.last.ari for run in runs], 2)
        purity = average([run.last.purity for run in runs], 2)
        table.add_row(
            name,
            *([loss] if by_loss else [accuracy, worst]),
            *([ari, purity] if planted else []),
            average([run.last.num_clusters for run in runs], 1),
            average([run.megabytes_down for run in runs], 1),
            average([run.megabytes_up for run in runs], 1),
            average([run.seconds for run in runs], 1),
        )
    return table


def course(outcomes: Sequence[Outcome], rounds: Sequence[int]) -> Table:
    """Accuracy after so many rounds, a row a method: mean and standard deviation over seeds.

    For regression, which has none, it is the loss.
    """
    by_loss = all(outcome.last.accuracy is None for outcome in outcomes)
    table = Table("method", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number in rounds:
        table.add_column(f"round {number}", justify="right", no_wrap=True)
    for name, runs in by_method(outcomes):
        cells = []
        for number in rounds:
            found = [run.records[number - 1 : number] for run in runs]
            measured = [after[0].loss if by_loss else after[0].accuracy for after in found if after]
            cells.append(spread(measured, 4))
        table.add_row(name, *cells)
    return table


def reached(outcomes: Sequence[Outcome], measure: str, goal: float) -> Table:
    """How many rounds each method took until a measure first reached a goal."""
    table = Table("method", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(f"rounds to {measure} {goal:g}", justify="right")
    table.add_column("seeds that reached it", justify="right")
    for name, runs in by_method(outcomes):
        found = [_first_round(run, measure, goal) for run in runs]
        table.add_row(name, spread(found, 1), f"{len(found) - found.count(None)} of {len(runs)}")
    return table


def _first_round(run: Outcome, measure: str, goal: float) -> float | None:
    for record in run.records:
        values = {**vars(record), **record.measures}
        known = [name for name, value in values.items() if value is None or isinstance(value, Real)]
        check(measure in known, "--reach", measure, f"any of {', '.join(known)}")
        if values[measure] is not None and reaches(measure, values[measure], goal):
            return record.round + 1
    return None


def assignment(found: Assignment, most: int = 6) -> Table:
    """Each newcomer's cluster and its score of each, or of the best three if there are many."""
    table = Table("client", "cluster", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.caption, table.caption_justify = f"score: {found.meaning}; the lowest wins", "left"
    num_clusters = found.scores.shape[1]
    few = num_clusters <= most
    shown = num_clusters if few else 3
    for column in range(shown):
        table.add_column(f"score of {column}" if few else f"best {column + 1}", justify="right")
    for name, scores in zip(found.clients, found.scores, strict=True):
        order = scores.argsort()[:shown].tolist()
        cells = [f"{k}: {float(scores[k]):.4g}" for k in order]
        cells = [f"{float(score):.4g}" for score in scores] if few else cells
        table.add_row(name, str(order[0]), *cells)
    return table


def cluster_count(count: ClusterCount, width: int = 40) -> Table:
    """Singular values as bars, the largest gap, and the other estimates beside the verdict."""
    table = Table("", "singular value", "", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    largest = float(count.singular_values[0]) or 1.0
    for number, value in enumerate(count.singular_values, start=1):
        gap = "  ◀ largest gap below" if number == count.rank else ""
        bar = "█" * round(width * float(value) / largest)
        table.add_row(str(number), f"{float(value):.4g}", bar + gap)
    table.caption = (
        f"other estimates: the largest gap is after {count.rank}; in as many dimensions the elbow "
        f"of k-means is at {count.elbow}, and the gap statistic chooses {count.gap_statistic}"
    )
    table.caption_justify = "left"
    return table


def last_round(record: Record) -> Table:
    """The results of a run, a line for each that is known."""
    table = Table(show_header=False)
    values: Mapping[str, object] = {
        "rounds": record.round + 1,
        "accuracy, mean over clients": _value(record.accuracy, 4),
        "accuracy, worst client": _value(record.worst, 4),
        "accuracy, std over clients": _value(record.accuracy_std, 4),
        "accuracy, mean over examples": _value(record.weighted_accuracy, 4),
        "loss": _value(record.loss, 4),
        "clusters": record.num_clusters,
        "models": None if record.num_models == record.num_clusters else record.num_models,
        "ARI": _value(record.ari, 3),
        "purity": _value(record.purity, 3),
        "NMI": _value(record.nmi, 3),
    }
    for name, value in values.items():
        if value is not None and value != "-":
            table.add_row(name, str(value))
    return table


def clusters(rows: Sequence[Mapping[str, str]], limit: int = 20) -> Table:
    """Who is in each cluster, the largest first, from the rows of `clusters.csv`.

    A cluster's accuracy is the mean over its clients; for regression, which has none, its loss.
    """
    measure = "accuracy" if any(row["accuracy"] for row in rows) else "loss"
    table = Table("cluster", "clients", "examples", measure, "planted groups", "members")
    by_cluster: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        by_cluster.setdefault(row["cluster"], []).append(row)
    largest = sorted(by_cluster.items(), key=lambda item: -len(item[1]))
    for cluster, members in largest[:limit]:
        values = [float(row[measure]) for row in members if row[measure]]
        names = [row["client"] for row in members]
        table.add_row(
            cluster,
            str(len(members)),
            str(sum(int(row["examples"]) for row in members)),
            _value(mean(values) if values else None, 3 if measure == "accuracy" else 4),
            " ".join(sorted({row["group"] for row in members})) or "-",
            " ".join(names[:12]) + (" ..." if len(names) > 12 else ""),
        )
    if len(largest) > limit:
        table.add_row("...", f"{len(largest) - limit} more clusters")
    return table


def absences(records: Sequence[Record], names: Sequence[str] = (), limit: int = 10) -> Table | None:
    """Who was missing or refused in how many rounds, the most often first; None if nobody was.

    Without their names, as before a run is finished, clients are known by their numbers.
    """
    reasons: dict[int, Counter[str]] = {}
    for record in records:
        why = {**dict.fromkeys(record.missing, NO_ANSWER), **record.refused}
        for client, reason in why.items():
            reasons.setdefault(client, Counter())[reason] += 1
    if not reasons:
        return None
    table = Table("absent client", "rounds missing", "rounds refused", "most frequent reason")
    absent = sorted(reasons.items(), key=lambda one: (-one[1].total(), one[0]))
    for client, counted in absent[:limit]:
        name = names[client] if client < len(names) else str(client)
        missing = counted[NO_ANSWER]
        refused = counted.total() - missing
        table.add_row(name, str(missing), str(refused), counted.most_common(1)[0][0])
    rounds = sum(bool(record.missing or record.refused) for record in records)
    table.caption = (
        f"{len(absent)} clients were absent at times, in {rounds} of {len(records)} rounds"
    )
    table.caption_justify = "left"
    if len(absent) > limit:
        table.add_row("...", "", "", f"{len(absent) - limit} more clients")
    return table


def one_line(record: Record, rounds: int | None) -> str:
    """A round as text, for terminals and logs; None where nobody knows how many there will be."""
    parts = [f"round {record.round + 1}" + (f"/{rounds}" if rounds else "")]
    if record.accuracy is not None:
        parts.append(f"accuracy {record.accuracy:.3f}")
    elif record.loss is not None:
        parts.append(f"loss {record.loss:.4g}")
    if record.num_clusters is not None:
        parts.append(f"clusters {record.num_clusters}")
    if record.ari is not None:
        parts.append(f"ARI {record.ari:.2f}")
    absent = len(record.missing) + len(record.refused)
    if absent:
        parts.append(f"absent {absent}")
    return "  ".join(parts)


def _value(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
