"""Figures as specifications of Vega-Lite, for pages, files and notebooks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any

from umbel.checks import UsageError, check, printable
from umbel.files.atomic import replacing
from umbel.report.figures.charts import (
    COLOURS,
    Chart,
    Figure,
    Heatmap,
    Line,
    Scatter,
    Strips,
    in_order,
    turn,
)
from umbel.run.scores import number_or_none

Spec = dict[str, Any]

FORMATS = (".png", ".svg", ".pdf")

VERSION = "6.4"
"""The version of Vega-Lite that figures are written for."""

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right")
DASHES = ([1, 0], [6, 3], [8, 3, 2, 3], [2, 2], [12, 4])  # of the lines after the first few colours
INK, GREY, MUTED = "#000000", "#767676", "#76767666"
"""Black, which pages replace by the colour of their text, and greys for light and dark pages."""

ON_COLOURS = ("#ffffff", *["#111111"] * 6, "#ffffff")
"""Readable text colours on dots of each colour."""

WIDTH, HEIGHT, ROW = 380, 270, 18
"""Pixels of a plot without its axes, and of a row, in a file."""

SCALES = ("color", "fill", "shape", "size", "stroke", "strokeDash", "xOffset")
"""The scales of figures that are side by side and have nothing in common."""

MOST_NAMED, LONGEST_NAME = 40, 40
"""Most rows or columns of a heat map that are named, and most letters of such a name."""

MOST_MARKED, MOST_LISTED = 25, 24
"""Most markers on a line, and most clusters in the legend of a heat map."""

DASHED: Spec = {"type": "rule", "color": GREY, "strokeDash": [4, 3]}
"""A line that is no measurement, such as the round of clustering."""

PLAIN = {"titleFontWeight": "normal"}

CONFIG: Spec = {
    "axis": {"gridOpacity": 0.5, "labelLimit": 300, "labelSeparation": 4} | PLAIN,
    "legend": {"labelLimit": 300, "symbolLimit": 100} | PLAIN,
    "title": {"fontSize": 12, "offset": 12},
    "view": {"stroke": None},
}
"""The looks of all figures, apart from the colours of pages."""


@dataclass(frozen=True)
class Drawing:
    """A figure that notebooks show and that `save` writes; `spec` is its Vega-Lite."""

    spec: Spec

    def save(self, file: Path | str) -> None:
        """Write a .png, .svg or .pdf file, complete or not at all.

        Equal figures make equal files, but for PDF: vl-convert 1.9.0 orders its objects anew each
        time. Raises `UsageError` for a file of another kind.
        """
        file = Path(file)
        check_format(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        content = self._converted(file.suffix)
        with replacing(file.resolve()) as beside:  # for a link, its target
            beside.write_bytes(content)

    def _repr_png_(self) -> bytes:
        return self._converted(".png")

    def _converted(self, suffix: str) -> bytes:
        import vl_convert

        if suffix == ".png":
            return bytes(vl_convert.vegalite_to_png(self.spec, VERSION, scale=2))
        # Vega numbers clips and gradients through all figures of a process.
        numbers: dict[str, int] = {}
        svg = re.sub(
            r'(?<=id="|rl\(#)(clip|gradient_)\d+',
            lambda found: f"{found[1]}{numbers.setdefault(found[0], len(numbers))}",
            str(vl_convert.vegalite_to_svg(self.spec, VERSION)),
        )
        return svg.encode() if suffix == ".svg" else bytes(vl_convert.svg_to_pdf(svg))


def check_format(file: Path) -> None:
    """Raise `UsageError` if figures can't be written to a file of this kind."""
    check(file.suffix in FORMATS, "--plot", str(file), f"a file that ends in {', '.join(FORMATS)}")


def check_plotting() -> None:
    """Raise `UsageError` if the plotting library is not installed."""
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        raise UsageError('figures need an extra: pip install "umbel[plot]"') from None


def draw(charts: Sequence[Figure], file: Path) -> None:
    """Write the figures, two side by side, to a file in the format of its suffix.

    Raises `UsageError` without the plotting library, or for a file of another kind.
    """
    drawn(charts).save(file)


def drawn(charts: Sequence[Figure], columns: int = 2) -> Drawing:
    """The figures side by side. Raises `UsageError` without the plotting library."""
    check_plotting()
    views = []
    for chart in charts:
        width, height = size(chart)
        title = {"title": wrap(printable(chart.title), width // 7)} if chart.title else {}
        views.append(spec(chart, width, height) | title | {"width": width, "height": height})
    channels = dict.fromkeys(SCALES, "independent")
    whole = {"concat": views, "columns": columns, "resolve": {"scale": channels}}
    config = CONFIG | {"background": "white", "font": "sans-serif", "aria": False}
    return Drawing({**(views[0] if len(views) == 1 else whole), "config": config})


def size(figure: Figure) -> tuple[int, int]:
    """Width and height of the plot in a file."""
    if isinstance(figure, Strips):
        return WIDTH, max(90, ROW * len(figure.strips))
    if isinstance(figure, Heatmap):
        named = 11 * len(figure.rows) if len(figure.rows) <= MOST_NAMED else 0
        return WIDTH, max(HEIGHT, named)
    if isinstance(figure, Scatter) and figure.is_map:
        (left, right), (low, high) = figure.room
        scale = min(30, 600 / max(right - left, high - low))
        return round(scale * (right - left)), round(scale * (high - low))
    return WIDTH, HEIGHT


def style(figure: Figure) -> str:
    """The CSS of a figure's place on a page, which is as wide as there is room."""
    if isinstance(figure, Strips):
        return f"height: {ROW * len(figure.strips) + 110}px"
    if isinstance(figure, Heatmap):
        square = figure.rows == figure.columns
        return "aspect-ratio: 1.15; max-height: 44rem" if square else "height: 26rem"
    if isinstance(figure, Scatter) and figure.is_map:
        width, height = size(figure)
        return f"aspect-ratio: {width} / {height + 60}; max-height: 36rem"
    return ""


def renderer(figure: Figure) -> str:
    """What a page draws the figure by: an image if it has thousands of marks."""
    many = isinstance(figure, Heatmap) and figure.values.size > 2000
    return "canvas" if many else "svg"


def spec(figure: Figure, width: float | str = "width", height: float | str = "height") -> Spec:
    """The figure without a title and a size, which may be known to the page alone."""
    if isinstance(figure, Chart):
        made = _chart(figure)
    elif isinstance(figure, Heatmap):
        made = _heatmap(figure)
    elif isinstance(figure, Strips):
        made = _strips(figure)
    else:
        made = _scatter(figure, width, height)
    printed: Spec = _printed(made)
    return printed


def _printed(value: Any) -> Any:
    """Show the characters of texts that would turn or hide what stands beside them."""
    if isinstance(value, str):
        return printable(value, "\n")
    if isinstance(value, dict):
        return {key: _printed(each) for key, each in value.items()}
    return list(map(_printed, value)) if isinstance(value, list | tuple) else value


def _chart(chart: Chart) -> Spec:
    """Lines with bands, or points with error bars, over a common axis."""
    known = [line for line in chart.lines if any(y == y for y in line.y)]
    names = list(dict.fromkeys(line.name for line in chart.lines if not line.muted))
    looks = [-1 if line.muted else names.index(line.name) for line in known]
    values = sorted({x for line in known for x in line.x})
    points = any(line.points for line in known)
    rows = [row for line in known for row in _values(line)]
    x: Spec = {"field": "x", "title": _wrapped(chart.x_title)}
    y: Spec = {"field": "y", "type": "quantitative", "title": _wrapped(chart.y_title)}
    y |= {"scale": {"zero": chart.from_zero}}
    y |= {"axis": {"tickMinStep": 1, "format": "d"}} if chart.counts else {}
    if chart.categories:
        turned = -30 if sum(map(len, chart.categories)) > 45 else 0
        x |= {"type": "ordinal", "axis": _names(chart.categories) | {"labelAngle": turned}}
    else:
        whole = all(value.is_integer() for value in values)
        axis: Spec = {"tickMinStep": 1} if whole else {"labelOverlap": "greedy"}
        x |= {"type": "quantitative", "axis": {"grid": False, **axis}}
        x["scale"] = {"zero": False, "nice": False, "padding": 10 if points else 2}
        if chart.log_x:
            axis = {"values": values} if whole and len(values) <= 12 else {}
            x["axis"] |= {"format": ".3~g", "labelOverlap": "greedy", **axis}
            x["scale"] = {"type": "log", "nice": False, "padding": 10}
    texts = [named(line) for line in known]
    legend: Spec | None = {"title": None, "symbolOpacity": 1} if len(known) > 1 else None
    if legend and -1 in looks:
        legend["values"] = [each for each, look in zip(texts, looks, strict=True) if look >= 0]

    def looked(cycle: Sequence[Any], published: Any = None, muted: Any = None) -> Spec:
        range_ = [
            muted if look < 0 else published if line.published and published else turn(cycle, look)
            for line, look in zip(known, looks, strict=True)
        ]
        scale = {"domain": texts, "range": range_}
        return {"field": "line", "type": "nominal", "scale": scale, "legend": legend}

    place: Spec = {"x": x}
    if chart.categories:  # side by side
        place["xOffset"] = {"field": "line", "type": "nominal", "scale": {"domain": texts}}
    stroke = {"stroke": looked(COLOURS, muted=MUTED)}
    fill = {"fill": looked(COLOURS, "transparent", GREY)}
    reach = {"y": y | {"field": "low"}, "y2": {"field": "high"}}
    mark: Spec = {"type": "point", "filled": True, "size": 60 if points else 40}
    on_marks: Spec = {
        "y": y,
        "shape": looked(SHAPES, muted=SHAPES[0]),
        "opacity": _if("datum.marked", 1, 0),
        "tooltip": [
            {"field": "line", "type": "nominal", "title": "line"},
            {"field": "x", "title": chart.x_title or "x"},
            {"field": "y", "title": chart.y_title or "y", "format": ".4~g"},
        ],
    }
    layers: list[Spec] = [
        {"mark": mark | {"strokeWidth": 1.5}, "encoding": place | stroke | fill | on_marks}
    ]
    if points:
        layers.insert(0, {"mark": "rule", "encoding": place | stroke | reach})
    else:
        dash = {"y": y, "strokeDash": looked(DASHES, DASHES[1], DASHES[0])}
        layers.insert(0, {"mark": "line", "encoding": place | stroke | dash})
        if any(line.low for line in known):
            area = {"type": "area", "opacity": 0.15}
            layers.insert(0, {"mark": area, "encoding": place | fill | reach})
    if chart.marks:
        middle = (values[0] + values[-1]) / 2
        marks = [
            {"x": mark.x, "text": mark.text, "y": -5 - 11 * (n % 3), "left": mark.x > middle}
            for n, mark in enumerate(chart.marks)
        ]
        layers += _uprights(x, marks)
    if chart.limit is not None:
        once: Spec = {"data": {"values": [{"y": chart.limit}]}, "encoding": {"y": y}}
        text = {"type": "text", "color": GREY, "fontSize": 10, "align": "right", "dy": -6}
        text |= {"text": f"limit {chart.limit:g}", "x": "width"}
        layers += [{**once, "mark": mark} for mark in (DASHED, text)]
    return {"data": {"values": rows}, "layer": layers}


def _values(line: Line) -> Iterable[Spec]:
    """Each point, and whether it has a marker: some of a long line, and all without a line."""
    y = [None, *map(number_or_none, line.y), None]
    ends = [list(map(number_or_none, end)) or [None] * len(line.x) for end in (line.low, line.high)]
    every = 1 if line.points or len(line.x) <= MOST_MARKED else len(line.x) // 10
    for n, x in enumerate(line.x):
        marked = not line.muted and (n % every == 0 or (y[n] is None and y[n + 2] is None))
        row: Spec = {"line": named(line), "x": x, "y": y[n + 1], "marked": marked}
        if line.low:
            row |= {"low": ends[0][n], "high": ends[1][n]}
        yield row


def named(line: Line) -> str:
    """The name in a legend."""
    return f"{line.name}, published" if line.published else line.name


def _uprights(x: Spec, marks: list[Spec]) -> list[Spec]:
    """Vertical lines, with a text above each."""
    data = {"values": marks}
    y = {"field": "y", "type": "quantitative", "scale": None}  # in pixels
    text = {"x": x, "y": y, "text": {"field": "text"}}
    texts: list[Spec] = []
    for left in sorted({mark["left"] for mark in marks}):
        side = {"align": "right", "dx": -3} if left else {"align": "left", "dx": 3}
        mark = {"type": "text", "color": GREY, "fontSize": 10, **side}
        these = {"values": [mark for mark in marks if mark["left"] is left]}
        texts.append({"data": these, "mark": mark, "encoding": text})
    return [{"data": data, "mark": DASHED, "encoding": {"x": x}}, *texts]


def _heatmap(figure: Heatmap) -> Spec:
    """A matrix as colours, with the tree of its rows at negative x, and a strip of clusters."""
    rows, columns = figure.values.shape
    details = figure.details or figure.rows
    square = figure.rows == figure.columns
    heads = details if square else figure.columns
    unit = columns / 100
    top = max((h for branch in figure.tree for h in branch.height), default=0) or 1
    blocks, begin = [], 0
    for cluster, members in groupby(figure.clusters):
        end = begin + len(list(members))
        blocks.append({"cluster": cluster, "begin": begin, "end": end})
        begin = end
    left = -25 * unit if figure.tree else -4 * unit if blocks else 0
    x: Spec = {"type": "quantitative", "title": None}
    x |= {"scale": {"domain": [left, columns], "nice": False}, "axis": _names(figure.columns, 0.5)}
    y: Spec = {"type": "quantitative", "title": None}
    y |= {"scale": {"domain": [rows, 0], "nice": False}, "axis": _names(figure.rows, 0.5)}
    x["axis"] |= {"labelAngle": -90, "labelLimit": 150}
    y["axis"] |= {"orient": "right" if figure.tree else "left"}
    cells: Spec = {
        "data": {
            "values": [
                {"row": n, "name": detail.replace("\n", ", "), "value": list(map(_short, values))}
                for n, (detail, values) in enumerate(zip(details, figure.values, strict=True))
            ]
        },
        "transform": [
            {"calculate": f"sequence({columns})", "as": "column"},
            {"flatten": ["value", "column"]},
            {
                "lookup": "column",
                "from": {
                    "data": {"values": [{"at": n, "head": h} for n, h in enumerate(heads)]},
                    "key": "at",
                    "fields": ["head"],
                },
            },
            {"calculate": "datum.row + 1", "as": "row_end"},
            {"calculate": "datum.column + 1", "as": "column_end"},
        ],
        "mark": {"type": "rect", "stroke": None},
        "encoding": {
            "x": x | {"field": "column"},
            "x2": {"field": "column_end"},
            "y": y | {"field": "row"},
            "y2": {"field": "row_end"},
            "color": {
                "field": "value",
                "type": "quantitative",
                "scale": {"scheme": "cividis"},
                "legend": {"title": wrap(figure.value_title, 20), "gradientLength": 120},
            },
            "tooltip": [
                {"field": "value", "type": "quantitative", "format": ".4~g"},
                {"field": "name", "title": "row"},
                {"field": "head", "title": "column"},
            ],
        },
    }
    layers: list[Spec] = [cells]
    edges: Spec = {"type": "rule", "color": "#ffffff", "strokeWidth": 1}
    breaks = {"data": {"values": [{"at": block["begin"]} for block in blocks[1:]]}}
    across = {"x": x | {"datum": 0}, "x2": {"datum": columns}, "y": y | {"field": "at"}}
    layers.append({**breaks, "mark": edges, "encoding": across})
    if square:
        layers.append({**breaks, "mark": edges, "encoding": {"x": x | {"field": "at"}}})
    if blocks:
        names = in_order(figure.clusters)
        legend = {"title": "cluster"} if len(names) <= MOST_LISTED else None
        place = {"x": x | {"datum": -3 * unit}, "x2": {"datum": -unit}}
        place |= {"y": y | {"field": "begin"}, "y2": {"field": "end"}}
        colour = _coloured("cluster", names, legend)
        strip = {"data": {"values": blocks}, "mark": "rect"}
        layers.append(strip | {"encoding": place | {"color": colour}})
    if figure.tree:
        corners = [
            {"branch": n, "corner": c, "x": -4 * unit - 20 * unit * _short(h) / top, "y": at + 0.5}
            for n, branch in enumerate(figure.tree)
            for c, (h, at) in enumerate(zip(branch.height, branch.at, strict=True))
        ]
        place = {"x": x | {"field": "x"}, "y": y | {"field": "y"}}
        place |= {"detail": {"field": "branch"}, "order": {"field": "corner"}}
        line = {"type": "line", "color": GREY, "strokeWidth": 1, "strokeDash": [1, 0]}
        layers.append({"data": {"values": corners}, "mark": line, "encoding": place})
    return {"layer": layers, "resolve": {"scale": {"color": "independent"}}}


def _scatter(figure: Scatter, width: float | str, height: float | str) -> Spec:
    """Dots in the plane, or on a map, where they are as large as there is room for."""
    largest = max((dot.size for dot in figure.dots), default=0) or 1
    (left, right), (low, high) = figure.room
    x: Spec = {"field": "x", "type": "quantitative", "title": _wrapped(figure.x_title)}
    y: Spec = {"field": "y", "type": "quantitative", "title": _wrapped(figure.y_title)}

    if figure.is_map:
        x |= {"axis": None, "scale": {"domain": [left, right], "nice": False}}
        y |= {"axis": None, "scale": {"domain": [low, high], "nice": False}}
        unit = f"min({width} / {right - left}, {height} / {high - low})"
        area: Any = {"expr": f"min(1600, pow(0.86 * {unit}, 2))"}
    else:
        x["scale"] = y["scale"] = {"zero": False, "padding": 10}
        if figure.whole_numbers:
            x["axis"] = y["axis"] = {"tickMinStep": 1, "format": "d"}
            x["scale"] = y["scale"] = {"zero": False, "padding": 25}
        unit, area = "20", 60 if len(figure.dots) <= 400 else 25
    rows = [
        {"x": _short(dot.x), "y": _short(dot.y), "size": dot.size, "group": dot.group}
        | {"kind": dot.kind, "name": dot.name, "text": dot.text}
        for dot in figure.dots
    ]
    place = {"x": x, "y": y}
    legend = {"title": figure.group_title} if figure.group_title else None
    kinds = in_order(dot.kind for dot in figure.dots)
    shown = len(figure.groups) > 1
    marks: Spec = {"color": _coloured("group", figure.groups, legend if shown else None)}
    marks["size"] = {"field": "size", "type": "quantitative", "legend": None}
    marks["size"]["scale"] = {"domain": [0, largest], "range": [0, area]}
    if len(kinds) > 1:
        marks["shape"] = {
            "field": "kind",
            "type": "nominal",
            "scale": {"domain": kinds, "range": [turn(SHAPES, n) for n in range(len(kinds))]},
            "legend": {"title": figure.kind_title, "symbolFillColor": GREY},
        }
    marks["tooltip"] = {"field": "text", "type": "nominal"}
    mark = {"type": "point", "filled": True, "opacity": 1, "stroke": "white", "strokeWidth": 0.5}
    layers: list[Spec] = [{"mark": mark, "encoding": place | marks}]
    if any(dot.name for dot in figure.dots):
        name: Spec = {"type": "text", "fontSize": {"expr": f"min(10, 0.4 * {unit})"}}
        colour = _coloured("group", figure.groups, None)
        colour["scale"]["range"] = [
            turn(ON_COLOURS, _look(n, g)) for n, g in enumerate(figure.groups)
        ]
        layers.append(
            {"mark": name, "encoding": place | {"text": {"field": "name"}, "color": colour}}
        )
    if figure.labels:
        texts = [{"x": each.x, "y": each.y, "text": each.text} for each in figure.labels]
        label = {"type": "text", "baseline": "top", "color": GREY, "fontSize": 10, "dy": 3}
        here = {"data": {"values": texts}, "mark": label}
        layers.append(here | {"encoding": place | {"text": {"field": "text"}}})
    several = {"resolve": {"scale": {"color": "independent"}}} if len(layers) > 1 else {}
    return {"data": {"values": rows}, "layer": layers, **several}


def _strips(figure: Strips) -> Spec:
    """Rows over one axis: dots, and means with their intervals."""
    names = [short(strip.name) for strip in figure.strips]
    x: Spec = {"type": "quantitative", "title": _wrapped(figure.x_title)}
    x["scale"] = {"zero": figure.sides is not None, "padding": 8}
    y: Spec = {"field": "y", "type": "quantitative", "title": None}
    y["scale"] = {"domain": [len(names) - 0.5, -0.5], "nice": False}
    y["axis"] = _names(names) | {"grid": False}
    place = {"x": x | {"field": "x"}, "y": y}
    dots = [
        {"x": _short(dot.x), "y": row + dot.y, "group": dot.group, "text": dot.text}
        for row, strip in enumerate(figure.strips)
        for dot in strip.dots
    ]
    legend = {"title": figure.group_title} if figure.group_title else None
    legend = legend if len(figure.groups) > 1 else None
    tooltip = {"tooltip": {"field": "text", "type": "nominal"}}
    looks: Spec = {"color": _coloured("group", figure.groups, legend), **tooltip}
    if legend is not None:
        shapes = [turn(SHAPES, _look(n, group)) for n, group in enumerate(figure.groups)]
        scale = {"domain": figure.groups, "range": shapes}
        looks["shape"] = looks["color"] | {"scale": scale}
    mark = {"type": "point", "filled": True, "size": 22 if len(dots) > 150 else 45, "opacity": 0.8}
    layers: list[Spec] = []
    if dots:
        layers.append({"data": {"values": dots}, "mark": mark, "encoding": place | looks})
    middles = [
        {"x": _short(m.at), "low": _short(m.low), "high": _short(m.high), "y": row}
        | {"sure": m.sure, "text": m.text}
        for row, strip in enumerate(figure.strips)
        if (m := strip.middle) is not None
    ]
    if middles:
        data = {"values": middles}
        reach = {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y}
        diamond = {"type": "point", "shape": "diamond", "size": 70, "fill": INK, "stroke": INK}
        sure = {"fillOpacity": _if("datum.sure", 1, 0), **tooltip}
        layers.append({"data": data, "mark": {"type": "rule", "color": INK}, "encoding": reach})
        layers.append({"data": data, "mark": diamond, "encoding": place | sure})
    if figure.sides is not None:
        zero = {"x": x | {"datum": 0}}
        once: Spec = {"data": {"values": [{}]}}
        layers.append({**once, "mark": {"type": "rule", "color": GREY}, "encoding": zero})
        for text, side, shift in zip(figure.sides, ("right", "left"), (-5, 5), strict=True):
            words = {"type": "text", "text": text, "align": side, "dx": shift, "y": -7}
            layers.append({**once, "mark": words | {"color": GREY}, "encoding": zero})
    return {"layer": layers}


def _coloured(field: str, names: Sequence[str], legend: Spec | None) -> Spec:
    """Colours: a cluster, which is a number, has the same one in all figures."""
    scale = {"domain": names, "range": [turn(COLOURS, _look(*each)) for each in enumerate(names)]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}


def _look(place: int, name: str) -> int:
    return int(name) if name.isdecimal() else place


def _if(test: str, value: float, other: float) -> Spec:
    return {"condition": {"test": test, "value": value}, "value": other}


def _names(names: Sequence[str], shift: float = 0) -> Spec:
    """An axis with a name at 0, 1 and so on, or without if there are too many."""
    if len(names) > MOST_NAMED:
        return {"labels": False, "ticks": False, "grid": False, "domain": False}
    texts = json.dumps([*map(short, names)])
    places = [place + shift for place in range(len(names))]
    said = {"labelExpr": f"{texts}[floor(datum.value)]", "labelOverlap": False}
    return {"values": places, **said, "ticks": False, "grid": False, "domain": False}


def short(name: str, most: int = LONGEST_NAME) -> str:
    """A name, without its middle if the whole name would leave too little room for the plot."""
    start, end = most * 3 // 5, most - 1 - most * 3 // 5
    return name if len(name) <= most else f"{name[:start]}…{name[-end:]}"


def _short(value: float) -> float | None:
    """Five digits, of which no more are seen."""
    return number_or_none(float(f"{value:.5g}"))


def _wrapped(title: str) -> list[str] | None:
    """A title in lines that fit beside or below a figure."""
    return wrap(title, 42) or None
