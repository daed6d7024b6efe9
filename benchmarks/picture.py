"""A figure of the cost of the server's own work against the number of clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.server import Row, number

MARKS = "osD^v"


def draw_server(rows: Sequence[Row], file: Path) -> None:
    """Seconds against clients, both logarithmic; the legend gives the slope of the last stretch."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for mark, name in zip(MARKS, dict.fromkeys(str(row["name"]) for row in rows), strict=False):
        mine = [row for row in rows if row["name"] == name]
        label = f"{name}: slope {mine[-1]['slope']:.2f}"
        clients, seconds = ([number(row, key) for row in mine] for key in ("clients", "seconds"))
        axes.loglog(clients, seconds, marker=mark, label=label)
    axes.set(xlabel="clients", ylabel="CPU seconds")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center")
    figure.savefig(file, dpi=150)
