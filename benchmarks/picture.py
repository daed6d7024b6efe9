"""A figure of the cost of the server's own work against the number of clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.server import Row
from umbel.report.figures.drawing import Drawing


def draw_server(rows: Sequence[Row], file: Path) -> None:
    """Seconds against clients, both logarithmic; the legend gives the slope of the last stretch."""
    last = {str(row["name"]): row["slope"] for row in rows}
    values = [
        {**row, "label": f"{row['name']}: slope {last[str(row['name'])]:.2f}"} for row in rows
    ]
    log = {"type": "quantitative", "scale": {"type": "log"}}
    encoding = {
        "x": log | {"field": "clients"},
        "y": log | {"field": "seconds", "title": "CPU seconds"},
        "color": {"field": "label", "type": "nominal", "title": None},
        "shape": {"field": "label", "type": "nominal", "title": None},
    }
    mark = {"type": "line", "point": True}
    Drawing({"data": {"values": values}, "mark": mark, "encoding": encoding}).save(file)
