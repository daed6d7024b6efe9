"""Charts of lines and of points, in plotly's format."""

from __future__ import annotations

from itertools import groupby
from math import ceil, floor, log10

from umbel.report.figures.charts import COLOURS, Chart, Line, turn
from umbel.report.figures.pieces import DASHES, SYMBOLS, Spec, axis, escape, named, note, upright
from umbel.run.scored import number_or_none

MARKED = 15
"""Approximate number of points with a marker in a line."""


def curves(figure: Chart) -> Spec:
    """A chart of lines, or of points."""
    data: list[Spec] = []
    names = list(dict.fromkeys(line.name for line in figure.lines))
    for line in figure.lines:
        look = names.index(line.name)
        if line.low and not line.points:
            data += _bands(line, look)
        data.append(_line(line, look))
    lines = len(figure.lines)
    alone = any(line.points for line in figure.lines)
    layout: Spec = {
        "xaxis": axis(figure.x_title) | (_logarithmic(figure) if figure.log_x else {}),
        "yaxis": axis(figure.y_title) | ({"rangemode": "tozero"} if figure.from_zero else {}),
        "showlegend": lines > 1,
        "hovermode": "closest" if alone else "x unified",
        "shapes": [upright(mark.x) for mark in figure.marks],
        "annotations": [
            note(mark.x, 1, mark.text)
            | {"yref": "paper", "xanchor": "center", "yanchor": "bottom", "yshift": 12 * (n % 2)}
            for n, mark in enumerate(figure.marks)
        ],
    }
    if figure.categories:
        layout["xaxis"] |= {
            "tickvals": list(range(len(figure.categories))),
            "ticktext": [escape(name) for name in figure.categories],
        }
    elif lines > 1:
        layout["meta"] = {"names": _names(figure)}
    return {"data": data, "layout": layout}


def _logarithmic(figure: Chart) -> Spec:
    """An axis with 1, 2 and 5 of each power of ten."""
    values = [x for line in figure.lines for x in line.x]
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    ticks = [float(f"{n}e{power}") for power in range(low, high + 1) for n in (1, 2, 5)]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _line(line: Line, look: int) -> Spec:
    colour = turn(COLOURS, look)
    name = f"{line.name}, published" if line.published else line.name
    trace: Spec = {
        "type": "scatter",
        "mode": "markers" if line.points else "lines+markers",
        "name": escape(name),
        "x": list(line.x),
        "y": [number_or_none(y) for y in line.y],
        "line": {"color": colour, "dash": "dash" if line.published else turn(DASHES, look)},
        "marker": {
            "color": colour,
            "symbol": turn(SYMBOLS, look) + ("-open" if line.published else ""),
            "size": 8 if line.points else 7,
            "maxdisplayed": 0 if line.points else MARKED,
            "line": {"width": 1.5 if line.published else 0, "color": colour},
            "opacity": 1,
        },
        "hovertemplate": "%{y:.4~g}",
        "connectgaps": False,
    }
    if line.points and line.low:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [number_or_none(h - y) for h, y in zip(line.high, line.y, strict=True)],
            "arrayminus": [number_or_none(y - z) for z, y in zip(line.low, line.y, strict=True)],
        }
    return trace


def _bands(line: Line, look: int) -> list[Spec]:
    """A filled shape for each section without gaps."""
    rows = zip(line.x, line.low, line.high, strict=True)
    bands = []
    for known, stretch in groupby(rows, key=lambda row: number_or_none(row[1]) is not None):
        if not known:
            continue
        points = list(stretch)
        bands.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [x for x, _, _ in points] + [x for x, _, _ in points[::-1]],
                "y": [low for _, low, _ in points] + [high for _, _, high in points[::-1]],
                "fill": "toself",
                "fillcolor": f"{turn(COLOURS, look)}26",  # one part in seven
                "line": {"width": 0},
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    return bands


def _names(figure: Chart) -> Spec:
    """The position of each line's name: at its end, or next to its points."""
    places: list[Spec] = []
    points = all(line.points for line in figure.lines)
    for look, line in enumerate(figure.lines):
        pairs = zip(line.x, line.y, strict=True)
        known = [(x, y) for x, y in pairs if number_or_none(y) is not None]
        if not known:
            continue
        # Next to an existing point: between two seeds there may be none.
        x, y = sorted(known, key=lambda each: each[1])[len(known) // 2] if points else known[-1]
        places.append(named(line.name, log10(x) if figure.log_x else x, y, look))
    return {"kind": "near" if points else "ends", "places": places}
