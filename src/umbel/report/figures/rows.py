"""Rows of dots with names at the side, in plotly's format."""

from __future__ import annotations

from umbel.report.figures.charts import COLOURS, Strips, turn
from umbel.report.figures.pieces import SYMBOLS, Spec, axis, escape, note, several, upright


def strips(figure: Strips) -> Spec:
    """Dots of each group, means with their intervals, and names that the page shortens."""
    data = [_dots(figure, look, group) for look, group in enumerate(figure.groups)]
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


def _dots(figure: Strips, look: int, group: str) -> Spec:
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
