"""Figures in plotly's format."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import dist
from statistics import fmean

from umbel.report.figures.charts import COLOURS, Chart, Figure, Heatmap, Scatter, Strips, turn
from umbel.report.figures.curves import curves
from umbel.report.figures.pieces import SYMBOLS, Spec, axis, escape, named, note, several
from umbel.report.figures.rows import strips
from umbel.run.scored import number_or_none

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
"""Colour of gaps in a heat map, on dark pages, too: no value has it."""


ON_COLOURS = ("#ffffff", "#111111", "#111111", "#111111", "#111111", "#111111", "#111111", "paper")
"""Readable text colours on dots of each colour."""


def spec(figure: Figure) -> Spec:
    """A figure for plotly: `data` and `layout`, without the page's own colours."""
    if isinstance(figure, Chart):
        return curves(figure)
    if isinstance(figure, Heatmap):
        return _heatmap(figure)
    if isinstance(figure, Strips):
        return strips(figure)
    return _scatter(figure)


def _heatmap(figure: Heatmap) -> Spec:
    rows, columns = figure.values.shape
    details = figure.details or figure.rows
    title = {"text": escape(figure.value_title), "side": "top"}
    trace: Spec = {
        "type": "heatmap",
        "z": [[number_or_none(float(f"{each:.4g}")) for each in row] for row in figure.values],
        "colorscale": "Cividis",
        # On top, since the names of the rows are at the side.
        "colorbar": {"title": title, "thickness": 12, "orientation": "h", "xpad": 0}
        | {"y": 1, "yanchor": "bottom", "len": 0.6, "x": 1, "xanchor": "right"},
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
        "annotations": _blocks(figure, "left" if figure.tree else "right"),
        "shapes": [BEHIND]
        + [_rule("y", at) for at in figure.breaks]
        + ([_rule("x", at) for at in figure.breaks] if square else []),
    }
    data = [trace]
    if figure.tree:
        layout["xaxis"]["domain"] = [0.2, 1]
        layout["xaxis2"] = {"domain": [0, 0.19], "autorange": "reversed", "visible": False}
        layout["yaxis"]["anchor"] = "x"
        layout["yaxis"]["side"] = "right"
        data.append(_tree(figure))
    return {"data": data, "layout": layout}


def _blocks(figure: Heatmap, side: str) -> list[Spec]:
    """The names of blocks of rows, next to the blocks."""
    edges = [0, *figure.breaks, len(figure.rows)]
    x, anchor, shift = (0, "right", -6) if side == "left" else (1, "left", 6)
    place: Spec = {"xref": "paper", "xanchor": anchor, "xshift": shift, "yanchor": "middle"}
    return [
        # The page drops those without room by how many rows they have.
        note(x, (begin + end - 1) / 2, name) | place | {"name": str(end - begin)}
        for name, (begin, end) in zip(figure.blocks, pairwise(edges), strict=False)
    ]


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
    below = {"xanchor": "center", "yanchor": "top", "yshift": -3}
    layout: Spec = {
        "xaxis": axis(figure.x_title),
        "yaxis": axis(figure.y_title),
        "showlegend": bool(figure.group_title) and len(figure.groups) > 1,
        "legend": {"title": {"text": f"{escape(figure.group_title)}  "}},
        "hovermode": "closest",
        "annotations": [note(each.x, each.y, each.text) | below for each in figure.labels],
    }
    if figure.is_map:
        layout |= _map_axes(figure)
    elif figure.named:
        places = [
            named(f"{figure.group_title} {group}", *_centre(figure, group), look)
            for look, group in enumerate(figure.groups)
        ]
        layout["meta"] = {"names": {"kind": "near", "places": places}}
    largest = max((dot.size for dot in figure.dots), default=0) or 1
    data = [_dots(figure, look, group, largest) for look, group in enumerate(figure.groups)]
    return {"data": data, "layout": layout}


def _dots(figure: Scatter, look: int, group: str, largest: float) -> Spec:
    """The dots of one group."""
    dots = [dot for dot in figure.dots if dot.group == group]
    relative = [round((dot.size / largest) ** 0.5, 3) for dot in dots]
    many = len(figure.dots) > 400
    sizes = [max(4, 16 * each) for each in relative] if figure.is_map else 6 if many else 9
    return {
        "type": "scatter",
        "mode": "markers+text" if any(dot.name for dot in dots) else "markers",
        "name": escape(group),
        "x": [round(dot.x, 5) for dot in dots],
        "y": [round(dot.y, 5) for dot in dots],
        "text": [escape(dot.name) for dot in dots],
        "textfont": {"size": 10, "color": turn(ON_COLOURS, look)},
        "hovertext": [several(dot.text) for dot in dots],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {
            "color": turn(COLOURS, look),
            "symbol": turn(SYMBOLS, look),
            "size": sizes,
            "line": {"width": 0.5 if many else 1, "color": "paper"},
            "opacity": 1,
        },
        "meta": {"relative": relative} if figure.is_map else {},
    }


def _centre(figure: Scatter, group: str) -> tuple[float, float]:
    """The dot nearest to the middle of its group."""
    dots = [(dot.x, dot.y) for dot in figure.dots if dot.group == group]
    middle = fmean(x for x, _ in dots), fmean(y for _, y in dots)
    return min(dots, key=lambda dot: dist(dot, middle))


def _map_axes(figure: Scatter) -> Spec:
    """No axes, one scale, and how large the whole is, by which the page sizes the dots."""
    (left, right), (low, high) = figure.room
    return {
        "xaxis": {"visible": False, "range": [left, right]},
        "yaxis": {"visible": False, "range": [low, high], "scaleanchor": "x"},
        "meta": {"map": {"width": right - left, "height": high - low}},
    }


def _named(names: Sequence[str], shown: bool) -> Spec:
    plain: Spec = {"showgrid": False, "zeroline": False, "automargin": True, "ticks": ""}
    if not shown:
        return plain | {"showticklabels": False}
    texts = [escape(name) for name in names]
    return plain | {
        "tickvals": list(range(len(names))),
        "ticktext": texts,
        "tickfont": {"size": 10},
    }


def _rule(axis: str, at: int) -> Spec:
    """A line between two rows or columns of a heat map, from edge to edge."""
    other = "y" if axis == "x" else "x"
    ends = {f"{axis}0": at - 0.5, f"{axis}1": at - 0.5, f"{other}0": 0, f"{other}1": 1}
    line = {"color": "#ffffff", "width": 1.5}
    return {"type": "line", **ends, f"{other}ref": f"{other} domain", "line": line}
