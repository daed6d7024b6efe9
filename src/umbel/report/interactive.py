"""Figures as plotly's descriptions of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from math import isfinite
from typing import Any

from umbel.charts import COLOURS, Chart, Figure, Heatmap, Line, Scatter, turn

SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
DASHES = ("solid", "dash", "dashdot", "dot", "longdash")

MARKED = 15
"""Lines of more points have a marker on about so many of them."""

Spec = dict[str, Any]

BEHIND: Spec = {
    "type": "rect",
    "xref": "x domain",
    "yref": "y domain",
    "x0": 0,
    "x1": 1,
    "y0": 0,
    "y1": 1,
    "fillcolor": "#ffffff",
    "layer": "below",
    "line": {"width": 0},
}
"""What gaps of a heat map show, on dark pages too: a colour that no value has."""


def spec(figure: Figure) -> Spec:
    """What plotly draws: `data` and `layout`, without colours of the page itself."""
    if isinstance(figure, Chart):
        return _chart(figure)
    if isinstance(figure, Heatmap):
        return _heatmap(figure)
    return _scatter(figure)


def _chart(figure: Chart) -> Spec:
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
        "xaxis": _axis(figure.x_title) | ({"type": "log"} if figure.log_x else {}),
        "yaxis": _axis(figure.y_title) | ({"rangemode": "tozero"} if figure.from_zero else {}),
        "showlegend": lines > 1,
        "hovermode": "closest" if alone else "x unified",
        "shapes": [_upright(mark.x) for mark in figure.marks],
        "annotations": [
            _note(mark.x, 1, mark.text)
            | {"yref": "paper", "xanchor": "center", "yanchor": "bottom", "yshift": 12 * (n % 2)}
            for n, mark in enumerate(figure.marks)
        ],
    }
    if figure.categories:
        layout["xaxis"] |= {
            "tickvals": list(range(len(figure.categories))),
            "ticktext": [escape(name) for name in figure.categories],
        }
    return {"data": data, "layout": layout}


def _line(line: Line, look: int) -> Spec:
    colour = turn(COLOURS, look)
    name = f"{line.name}, published" if line.published else line.name
    trace: Spec = {
        "type": "scatter",
        "mode": "markers" if line.points else "lines+markers",
        "name": escape(name),
        "x": list(line.x),
        "y": [_value(y) for y in line.y],
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
            "array": [_value(h - y) for h, y in zip(line.high, line.y, strict=True)],
            "arrayminus": [_value(y - low) for low, y in zip(line.low, line.y, strict=True)],
        }
    return trace


def _bands(line: Line, look: int) -> list[Spec]:
    """A filled shape for each stretch without gaps."""
    rows = zip(line.x, line.low, line.high, strict=True)
    bands = []
    for known, stretch in groupby(rows, key=lambda row: _value(row[1]) is not None):
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


def _heatmap(figure: Heatmap) -> Spec:
    rows, columns = figure.values.shape
    details = figure.details or figure.rows
    title = {"text": escape(figure.value_title), "side": "top"}
    trace: Spec = {
        "type": "heatmap",
        "z": [[_value(float(f"{value:.4g}")) for value in row] for row in figure.values],
        "colorscale": "Cividis",
        "colorbar": {"title": title, "thickness": 12},
        "hovertemplate": "%{text}<br>%{z:.4~g}<extra></extra>",
        "hoverongaps": False,
    }
    square = figure.rows == figure.columns
    said = [escape(detail.replace("\n", ", ")) for detail in details]
    heads = said if square else [escape(name) for name in figure.columns]
    few = max(rows, columns) <= 40
    layout: Spec = {
        "xaxis": _named(figure.columns, few) | {"range": [-0.5, columns - 0.5]},
        "yaxis": _named(figure.rows, few) | {"range": [rows - 0.5, -0.5]},
        "showlegend": False,
        # The page makes the text of every cell of these: there may be many cells.
        "meta": {"heatmap": {"square": square, "rows": said, "columns": heads}},
        "shapes": [BEHIND]
        + [_rule("y", at) for at in figure.breaks]
        + ([_rule("x", at) for at in figure.breaks] if square else []),
    }
    data = [trace]
    if figure.tree:
        layout["xaxis"]["domain"] = [0.2, 1]
        layout["xaxis2"] = {"domain": [0, 0.19], "autorange": "reversed", "visible": False}
        layout["yaxis"]["anchor"] = "x"
        layout["yaxis"]["side"] = "left"
        layout["yaxis"]["showticklabels"] = False
        data.append(_tree(figure))
    return {"data": data, "layout": layout}


def _tree(figure: Heatmap) -> Spec:
    x: list[float | None] = []
    y: list[float | None] = []
    for branch in figure.tree:
        x += [*(float(f"{height:.4g}") for height in branch.height), None]
        y += [*branch.at, None]
    line = {"color": "currentColor", "width": 1}
    place: Spec = {"xaxis": "x2", "yaxis": "y", "hoverinfo": "skip"}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, **place}


def _scatter(figure: Scatter) -> Spec:
    largest = max((dot.size for dot in figure.dots), default=0) or 1
    many = len(figure.dots) > 400
    data: list[Spec] = []
    for look, group in enumerate(figure.groups):
        dots = [dot for dot in figure.dots if dot.group == group]
        relative = [round((dot.size / largest) ** 0.5, 3) for dot in dots]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": escape(group),
                "x": [round(dot.x, 5) for dot in dots],
                "y": [round(dot.y, 5) for dot in dots],
                "text": [_lines(dot.text) for dot in dots],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {
                    "color": turn(COLOURS, look),
                    "symbol": turn(SYMBOLS, look),
                    "size": [max(4, 16 * each) for each in relative]
                    if figure.is_map
                    else (6 if many else 9),
                    "line": {"width": 0.5 if many else 1, "color": "paper"},
                    "opacity": 1,
                },
                "meta": {"relative": relative} if figure.is_map else {},
            }
        )
    below = {"xanchor": "center", "yanchor": "top", "yshift": -3}
    labels = [_note(label.x, label.y, label.text) | below for label in figure.labels]
    layout: Spec = {
        "xaxis": _axis(figure.x_title),
        "yaxis": _axis(figure.y_title),
        "showlegend": bool(figure.group_title) and len(figure.groups) > 1,
        "legend": {"title": {"text": f"{escape(figure.group_title)}  "}},
        "hovermode": "closest",
        "annotations": labels,
    }
    if figure.is_map:
        layout |= _map_axes(figure)
    return {"data": data, "layout": layout}


def _map_axes(figure: Scatter) -> Spec:
    """No axes, one scale, and how large the whole is, by which the page sizes the dots."""
    xs = [dot.x for dot in figure.dots] + [label.x for label in figure.labels]
    ys = [dot.y for dot in figure.dots] + [label.y for label in figure.labels]
    left, right = min(xs, default=0) - 1.2, max(xs, default=0) + 1.2
    low, high = min(ys, default=0) - 0.6, max(ys, default=0) + 0.9
    return {
        "xaxis": {"visible": False, "range": [left, right]},
        "yaxis": {"visible": False, "range": [low, high], "scaleanchor": "x"},
        "meta": {"map": {"width": right - left, "height": high - low}},
    }


def _axis(title: str) -> Spec:
    return {"title": {"text": escape(title)}, "zeroline": False, "automargin": True}


def _named(names: Sequence[str], shown: bool) -> Spec:
    axis: Spec = {"showgrid": False, "zeroline": False, "automargin": True}
    if not shown:
        return axis | {"showticklabels": False}
    texts = [escape(name) for name in names]
    return axis | {"tickvals": list(range(len(names))), "ticktext": texts, "tickfont": {"size": 10}}


def _upright(x: float) -> Spec:
    line = {"color": "mark", "width": 1, "dash": "dash"}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def _rule(axis: str, at: int) -> Spec:
    """A line between two rows or columns of a heat map, from edge to edge."""
    other = "y" if axis == "x" else "x"
    ends = {f"{axis}0": at - 0.5, f"{axis}1": at - 0.5, f"{other}0": 0, f"{other}1": 1}
    line = {"color": "#ffffff", "width": 1.5}
    return {"type": "line", **ends, f"{other}ref": f"{other} domain", "line": line}


def _note(x: float, y: float, text: str) -> Spec:
    return {"x": x, "y": y, "text": escape(text), "showarrow": False, "font": {"size": 11}}


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def _value(value: float | None) -> float | None:
    """JSON knows no NaN."""
    return None if value is None or not isfinite(value) else value
