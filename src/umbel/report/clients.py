"""Figures of a run's clients: their clusters, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, cos, inf, pi, sin, sqrt

from umbel.folder.clients_file import Client, by_cluster
from umbel.report.figures.charts import Dot, Label, Scatter, Strip, Strips
from umbel.report.figures.panels import Panel
from umbel.result.run import Result
from umbel.result.statistics.fairness import value_of
from umbel.run.records import Record
from umbel.summary import counted

MOST_CLUSTERS, MOST_DOTS = 60, 1500
"""Most clusters on the map, which shows the largest, and approximate clients in figures."""

FEW_ROWS = 40
"""Largest number of clients that get a row and a name each."""

FEW_DOTS, SHORT = 100, 3
"""Most clients with named dots, and most letters of such a name."""

GOLDEN = pi * (3 - sqrt(5))
"""The angle from one floret of an umbel or sunflower to the next."""


def said(client: Client) -> str:
    """All known facts about a client."""
    parts = [f"client {client.name}", f"cluster {client.cluster}"]
    if client.group:
        parts.append(f"planted group {client.group}")
    if client.examples is not None:
        parts.append(counted(client.examples, "training example"))
    parts += [f"{name} {value}" for name, value in client.attributes.items()]
    if client.accuracy is not None:
        parts.append(f"accuracy {client.accuracy:.3f}")
    elif client.loss is not None:
        parts.append(f"loss {client.loss:.4g}")
    return "\n".join(parts)


def cluster_map(run: Result) -> Panel | None:
    """One dot per client, by cluster, as in Mehta & Shao 2023, Fig. 4; None without clients."""
    if not run.clients:
        return None
    clusters = by_cluster(run.clients)
    shown = clusters[:MOST_CLUSTERS]
    thinned = [_thinned(each, sum(map(len, shown))) for each in shown]
    dots: list[Dot] = []
    labels: list[Label] = []
    places = _places([sqrt(len(each)) for each in thinned])
    for whole, few, (x, y) in zip(shown, thinned, places, strict=True):
        dots += _head(few, x, y, len(run.clients) <= FEW_DOTS)
        name = f"cluster {whole[0].cluster}: {len(whole)}"
        labels.append(Label(x, y - 0.56 * sqrt(len(few)) - 0.5, name))
    grouped = any(client.group for client in run.clients)
    figure = Scatter(
        "Who is in which cluster",
        "",
        "",
        tuple(dots),
        labels=tuple(labels) if len(shown) <= 24 else (),
        is_map=True,
        kind_title="planted group",
    )
    sentence = "One dot per client, in the colour of its cluster"
    sentence += " and the shape of its planted group." if grouped else "."
    sentence += " The larger a dot, the more training examples." if run.finished else ""
    if len(clusters) > len(shown):
        sentence += f" The {len(shown)} largest of {len(clusters)} clusters are shown."
    if sum(map(len, thinned)) < sum(map(len, shown)):
        total = sum(map(len, shown))
        sentence += f" {len(dots)} of their {total} clients are drawn, a share of each cluster."
    return Panel(figure, sentence, wide=True)


def worst_first(run: Result) -> list[Client]:
    """The clients by accuracy, or by loss if there is no accuracy; unknown ones last."""
    if run.by_loss:
        return sorted(run.clients, key=lambda c: inf if c.loss is None else -c.loss)
    return sorted(run.clients, key=lambda c: inf if c.accuracy is None else c.accuracy)


def fortunes(run: Result) -> Panel | None:
    """The clients from the worst to the best; None if there are no results."""
    ranked = [c for c in worst_first(run) if value_of(c, run.by_loss) is not None]
    if not ranked:
        return None
    if len(ranked) <= FEW_ROWS:
        return _row_by_row(run, ranked)
    worst = ranked[:100]
    rest = ranked[100:]
    step = max(1, ceil(len(rest) / MOST_DOTS))
    grouped = len({client.cluster for client in ranked}) <= 8
    dots = []
    for rank, client in [*enumerate(worst), *list(enumerate(rest, start=100))[::step]]:
        value = value_of(client, run.by_loss)
        assert value is not None
        group = str(client.cluster) if grouped else ""
        dots.append(Dot(rank + 1, value, 1, group, said(client)))
    what = "test loss" if run.by_loss else "test accuracy"
    figure = Scatter(
        "Client by client",
        "clients, the worst first",
        what,
        tuple(dots),
        "cluster" if grouped else "",
    )
    note = f"One dot per client. The worst are {', '.join(client.name for client in ranked[:3])}."
    if step > 1:
        note += (
            f" Of {len(ranked)} clients the 100 worst are drawn, and one in {step} of the others."
        )
    return Panel(figure, note, wide=True)


def _row_by_row(run: Result, ranked: Sequence[Client]) -> Panel:
    """Few clients by name."""
    strips = []
    for client in ranked:
        value = value_of(client, run.by_loss)
        assert value is not None
        dot = Dot(value, 0, 1, str(client.cluster), said(client))
        strips.append(Strip(client.name, (dot,)))
    what = "test loss" if run.by_loss else "test accuracy"
    figure = Strips("Client by client", what, tuple(strips), "cluster")
    return Panel(
        figure, "One dot per client, the worst first, in the colour of its cluster.", wide=True
    )


def _thinned(clients: Sequence[Client], total: int) -> list[Client]:
    """Sample a cluster's clients so that about `MOST_DOTS` of all are left."""
    step = max(1, ceil(total / MOST_DOTS))
    return list(clients[::step])


def _head(clients: Sequence[Client], x: float, y: float, named: bool) -> list[Dot]:
    """Positions of clients like florets in a flower head: even density, distances of about 1."""
    by_group = sorted(clients, key=lambda client: client.group)
    dots = []
    for place, client in enumerate(by_group):
        radius = 0.0 if len(clients) == 1 else 0.56 * sqrt(place + 0.5)
        angle = place * GOLDEN
        size = float(client.examples or 1)
        at = (x + radius * cos(angle), y + radius * sin(angle))
        name = client.name if named and len(client.name) <= SHORT else ""
        dots.append(Dot(*at, size, str(client.cluster), said(client), name, client.group))
    return dots


def _places(radii: Sequence[float]) -> list[tuple[float, float]]:
    """Centres of discs, scaled by 1.1 with room for names, in rows of similar width."""
    cells = [max(3.4, 1.2 * radius + 1.2) for radius in radii]
    width = sum(cells) / max(1, round(sqrt(len(cells) / 3)))
    places, x, y, height = [], 0.0, 0.0, 0.0
    for cell in cells:
        if x and x + cell / 2 > width:
            x, y, height = 0.0, y - height, 0.0
        height = max(height, cell + 0.6)
        places.append((x + cell / 2, y - cell / 2))
        x += cell
    return places


def not_served_apart(record: Record) -> str:
    """Text after a number of clusters if there are fewer models; otherwise empty."""
    models, clusters = record.num_models, record.num_clusters
    if models is None or clusters is None or models >= clusters:
        return ""
    return f", served {counted(models, 'model')} so far"
