"""Figures in plotly's format."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as as_html
from itertools import groupby, pairwise
from math import ceil, dist, floor, log10
from statistics import fmean
from typing import Any

from umbel.checks import printable
from umbel.report.figures.charts import COLOURS, Chart, Figure, Heatmap, Line, Scatter, Strips, turn
from umbel.run.scores import number_or_none

SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
DASHES = ("solid", "dash", "dashdot", "dot", "longdash")

Spec = dict[str, Any]


def escape(text: str) -> str:
    """A text for figures on a page, which interpret some HTML."""
    return as_html(printable(text, "\n\t"))


def axis(title: str) -> Spec:
    """An axis that leaves room for its own numbers."""
    plain: Spec = {"zeroline": False, "automargin": True, "exponentformat": "power"}
    return plain | {"title": {"text": escape(title)}}


def upright(x: float, dash: str = "dash") -> Spec:
    """A line from top to bottom."""
    line = {"color": "mark", "width": 1, "dash": dash}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def note(x: float, y: float, text: str) -> Spec:
    """A text at a position."""
    return {"x": x, "y": y, "text": escape(text), "showarrow": False, "font": {"size": 11}}


def named(name: str, x: float, y: float, look: int) -> Spec:
    """A name that the page puts next to a position, where it hides nothing."""
    return {"name": escape(name), "x": x, "y": y, "color": turn(COLOURS, look)}


def several(text: str) -> str:
    """Lines of text."""
    return escape(text).replace("\n", "<br>")


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


def strips(figure: Strips) -> Spec:
    """Dots of each group, means with their intervals, and names that the page shortens."""
    data = [_strip_dots(figure, look, group) for look, group in enumerate(figure.groups)]
    kinds = {strip.middle.sure for strip in figure.strips if strip.middle}
    data += [_middles(figure, sure) for sure in sorted(kinds)]
    names = [escape(strip.name) for strip in figure.strips]
    rows: Spec = {
        "zeroline": False,
        "showgrid": False,
        "automargin": True,
        "tickfont": {"size": 12},
    }
    rows |= {"range": [len(names) - 0.5, -0.5], "tickvals": list(range(len(names)))}
    beside = {"yref": "paper", "yanchor": "bottom"}
    sides = figure.sides or ()
    layout: Spec = {
        "xaxis": axis(figure.x_title),
        "yaxis": rows | {"ticktext": names},
        "showlegend": len(figure.groups) > 1 and bool(figure.group_title),
        "legend": {"title": {"text": f"{escape(figure.group_title)}  "}},
        "hovermode": "closest",
        "shapes": [upright(0, "solid")] if sides else [],
        "annotations": [
            note(0, 1, text) | beside | {"xanchor": anchor, "xshift": shift}
            for text, anchor, shift in zip(sides, ("right", "left"), (-6, 6), strict=False)
        ],
        "meta": {
            "rows": [escape(s.after) for s in figure.strips],
            "lone": all(len(s.dots) < 2 for s in figure.strips),
        },
    }
    return {"data": data, "layout": layout}


def _strip_dots(figure: Strips, look: int, group: str) -> Spec:
    """The dots of one group, in all rows."""
    dots = [
        (row, dot) for row, s in enumerate(figure.strips) for dot in s.dots if dot.group == group
    ]
    many = len(dots) > 150
    return {
        "type": "scatter",
        "mode": "markers",
        "name": escape(group),
        "x": [round(dot.x, 5) for _, dot in dots],
        "y": [round(row + dot.y, 3) for row, dot in dots],
        "text": [several(dot.text) for _, dot in dots],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "color": turn(COLOURS, look),
            "symbol": turn(SYMBOLS, look),
            "size": 5 if many else 8,
            "opacity": 0.8 if many else 1,
            "line": {"width": 0.5, "color": "paper"},
        },
    }


def _middles(figure: Strips, sure: bool) -> Spec:
    """The means that are sure, or those that are not, with their intervals."""
    middles = [
        (row, s.middle)
        for row, s in enumerate(figure.strips)
        if s.middle is not None and s.middle.sure is sure
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": [round(middle.at, 5) for _, middle in middles],
        "y": [row for row, _ in middles],
        "text": [several(middle.text) for _, middle in middles],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "color": "ink",
            "symbol": "diamond" if sure else "diamond-open",
            "size": 11,
            "line": {"width": 1.5, "color": "ink"},
        },
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [round(middle.high - middle.at, 5) for _, middle in middles],
            "arrayminus": [round(middle.at - middle.low, 5) for _, middle in middles],
            "color": "ink",
            "thickness": 1.5,
            "width": 5,
        },
    }
