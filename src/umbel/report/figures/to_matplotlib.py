"""Drawing of figures to files by matplotlib, which is optional."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.report.figures.charts import COLOURS, Chart, Figure, Heatmap, Line, Scatter, Strips, turn
from umbel.report.figures.matplotlib_files import any_script, check_format, check_plotting, save
from umbel.report.figures.matplotlib_layout import (
    FEW_TICKS,
    MOST_ROWS,
    NAMED,
    OF_A_COLUMN,
    OF_A_ROW,
    UP,
    beside,
    legend_columns,
    log_ticks,
    named,
    short,
    size,
    thinned,
    wrapped,
)
from umbel.report.figures.user_texts import in_figures
from umbel.server.cluster_count import ClusterCount

MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # one fewer than colours: few looks are the same
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))  # of the lines after the first few colours
GREY = "#767676"

ALL_MARKED = 25
"""Largest number of markers on a line."""


def draw(charts: Sequence[Figure], file: Path) -> None:
    """Write the figures, two side by side, to a file in the format of its suffix.

    Raises `UsageError` without the plotting library, or for a file of another kind.
    """
    check_format(file)
    with any_script():
        save(drawn(charts), file)


def draw_each(figures: Iterable[tuple[Figure, Path]]) -> None:
    """Write each of the figures to its file, as `draw` does."""
    with any_script():
        for figure, file in figures:
            save(drawn([figure]), file)


def drawn(charts: Sequence[Figure], columns: int = 2) -> Any:
    """The figures side by side as one matplotlib figure, which notebooks can show.

    Raises `UsageError` without the plotting library.
    """
    blank = _blank()
    columns = min(columns, len(charts))
    rows = ceil(len(charts) / columns)
    sizes = [size(chart) for chart in charts]
    width = max(width for width, _ in sizes)
    heights = [max(h for _, h in sizes[n * columns : (n + 1) * columns]) for n in range(rows)]
    figure = blank(figsize=(width * columns, sum(heights)), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, height_ratios=heights).flatten()
    for axes, chart in zip(grid, map(in_figures, charts), strict=False):
        if isinstance(chart, Chart):
            _draw_chart(axes, chart)
        elif isinstance(chart, Heatmap):
            _draw_heatmap(figure, axes, chart)
        elif isinstance(chart, Strips):
            _draw_strips(axes, chart)
        else:
            _draw_scatter(axes, chart)
        sides = isinstance(chart, Strips) and chart.sides is not None
        axes.set_title(wrapped(chart.title), fontsize=10, pad=14 if sides else None)
    for axes in grid[len(charts) :]:
        axes.set_visible(False)
    return figure


def draw_singular_values(count: ClusterCount, file: Path) -> None:
    """The singular values with their largest gap, and k-means with the estimates, side by side.

    Raises `UsageError` without the plotting library, or for a file of another kind.
    """
    check_format(file)
    figure = _blank()(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    values, inertia = count.singular_values, count.inertia
    left.plot(range(1, len(values) + 1), values, marker="o")
    gap = f"largest gap: s = {count.rank}"
    left.axvline(count.rank + 0.5, linestyle="--", color="grey", label=gap)
    left.set(xlabel="singular value", ylabel="size", title="vectors of the clients")
    left.legend()
    right.plot(range(1, len(inertia) + 1), inertia, marker="o")
    right.axvline(count.elbow, linestyle="--", color="grey", label=f"elbow: {count.elbow}")
    chosen = f"gap statistic: {count.gap_statistic}"
    right.axvline(count.gap_statistic, linestyle=":", color="black", label=chosen)
    right.set(xlabel="clusters", ylabel="within-cluster sum of squares", title="k-means")
    right.legend()
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
    with any_script():
        save(figure, file)


def _blank() -> Any:
    """The class of figures, a subclass of matplotlib's."""
    check_plotting()
    from matplotlib.figure import Figure as Blank

    class Shown(Blank):  # type: ignore[misc, unused-ignore]
        """Shows itself in notebooks, without pyplot and what that keeps for the whole process."""

        def _repr_png_(self) -> bytes:
            file = BytesIO()
            self.savefig(file, format="png", dpi=100)
            return file.getvalue()

    return Shown


def _draw_chart(axes: Any, chart: Chart) -> None:
    ours = [line for line in chart.lines if not line.published]
    names = list(dict.fromkeys(line.name for line in [*ours, *chart.lines]))
    for number, line in enumerate(chart.lines):
        apart = (number - (len(chart.lines) - 1) / 2) * 0.6 / max(3, len(chart.lines))
        shift = apart if chart.categories and line.points else 0.0
        _draw_line(axes, line, names.index(line.name), shift)
    for mark in chart.marks:
        axes.axvline(mark.x, linestyle=(0, (4, 3)), linewidth=1, color=GREY)
        text = f" {mark.text}"
        axes.text(mark.x, 0.02, text, transform=axes.get_xaxis_transform(), fontsize=7, color=GREY)
    axes.set(xlabel=wrapped(chart.x_title), ylabel=wrapped(chart.y_title, UP))
    if chart.from_zero:
        # A constant line would be on the upper edge, with its markers cut.
        highest = max((y for line in chart.lines for y in line.y if y == y), default=0.0)
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.1 * highest) or 1.0)
    if chart.counts:
        axes.yaxis.get_major_locator().set_params(integer=True)
    values = [x for line in chart.lines for x in line.x]
    if chart.log_x and values:
        ticks = log_ticks(values)
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
        axes.minorticks_off()
    else:
        whole = all(float(x).is_integer() for x in values)
        ticks_of = {"nbins": "auto" if whole else FEW_TICKS, "integer": whole}
        axes.xaxis.get_major_locator().set_params(**ticks_of)
        if whole and len(set(values)) == 1:
            axes.set_xlim(values[0] - 1, values[0] + 1)
    if chart.categories:
        places = range(len(chart.categories))
        turned = sum(map(len, chart.categories)) > 45
        axes.set_xticks(places, chart.categories, rotation=30 if turned else 0)
        axes.tick_params("x", labelsize=8)
        for label in axes.get_xticklabels() if turned else ():
            label.set_horizontalalignment("right")
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if beside(chart):
        _legend_beside(axes, chart)
    elif len(chart.lines) > 1:
        axes.legend(fontsize=8, framealpha=0.7, edgecolor="none")


def _legend_beside(axes: Any, chart: Figure, **more: Any) -> None:
    """Place the legend where it hides nothing."""
    columns = legend_columns(beside(chart))
    at = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "frameon": False}
    axes.legend(fontsize=7, ncols=columns, **at, **more)


def _draw_line(axes: Any, line: Line, look: int, shift: float) -> None:
    """The colour and marker of a line, and its dash, unless dashes mark values from papers."""
    x, y = np.array(line.x, dtype=float) + shift, _numbers(line.y)
    low, high = _numbers(line.low), _numbers(line.high)
    colour = turn(COLOURS, look)
    style: dict[str, Any] = {"color": colour, "label": named(line), "marker": turn(MARKERS, look)}
    style |= {"markersize": 5, "linewidth": 1.5}
    if line.published:
        style |= {"markerfacecolor": "none", "linestyle": "--"}
    else:
        style |= {"linestyle": turn(DASHES, look)}
    if line.points:
        reach = [y - low, high - y] if line.low else None
        axes.errorbar(x, y, reach, **(style | {"linestyle": "none", "capsize": 2.5}))
        return
    if line.low:
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, y, markevery=_marked(y, look), **style)


def _marked(y: NDArray[np.float64], look: int) -> list[int]:
    """Points with a marker: some points of a long line, and every point without a line."""
    known = np.isfinite(y)
    beside = np.concatenate([[False], known, [False]])
    alone = known & ~beside[:-2] & ~beside[2:]
    every = 1 if len(y) <= ALL_MARKED else len(y) // 10
    regular = np.arange(len(y)) % every == look % every
    return [int(place) for place in np.flatnonzero(known & (alone | regular))]


def _draw_heatmap(figure: Any, axes: Any, chart: Heatmap) -> None:
    # By default, values are blended with their neighbours in slightly magnified pictures.
    image = axes.imshow(chart.values, cmap="cividis", aspect="auto", interpolation="nearest")
    figure.colorbar(image, ax=axes, label=wrapped(chart.value_title, UP))
    for names, put in ((chart.rows, axes.set_yticks), (chart.columns, axes.set_xticks)):
        cut = [short(name, OF_A_COLUMN) for name in names]
        put(range(len(names)), cut, fontsize=6) if len(names) <= NAMED else put([])
    axes.tick_params("x", rotation=90)
    for place in chart.breaks:
        axes.axhline(place - 0.5, color="white", linewidth=0.8)
        if len(chart.rows) == len(chart.columns):
            axes.axvline(place - 0.5, color="white", linewidth=0.8)
    if chart.tree:
        side = axes.inset_axes((-0.02 - 0.22, 0, 0.2, 1), sharey=axes)
        for branch in chart.tree:
            side.plot([-height for height in branch.height], branch.at, color=GREY, linewidth=0.8)
        side.axis("off")
        axes.tick_params("y", left=False, labelleft=False)


def _draw_scatter(axes: Any, chart: Scatter) -> None:
    largest, thin = max((dot.size for dot in chart.dots), default=0) or 1, thinned(len(chart.dots))
    for look, group in enumerate(chart.groups):
        dots = [dot for dot in chart.dots if dot.group == group]
        axes.scatter(
            [dot.x for dot in dots],
            [dot.y for dot in dots],
            [thin * (12 + 100 * dot.size / largest) for dot in dots],
            color=turn(COLOURS, look),
            marker=turn(MARKERS, look),
            edgecolors="white",
            linewidths=0.6 * thin,
            label=group,
            clip_on=not chart.is_map,
        )
    for label in chart.labels:
        axes.text(label.x, label.y, label.text, ha="center", va="top", fontsize=7, color=GREY)
    if chart.is_map:
        (left, right), (low, high) = chart.room
        axes.set(aspect="equal", xlim=(left, right), ylim=(low, high))
        axes.axis("off")
    else:
        axes.set(xlabel=wrapped(chart.x_title), ylabel=wrapped(chart.y_title, UP))
        axes.grid(alpha=0.25, linewidth=0.6)
    if beside(chart):
        more = {"title_fontsize": 7, "markerscale": 0.6 / thin**0.5, "alignment": "left"}
        _legend_beside(axes, chart, title=chart.group_title, **more)


def _draw_strips(axes: Any, chart: Strips) -> None:
    for look, group in enumerate(chart.groups):
        dots = [(n, d) for n, s in enumerate(chart.strips) for d in s.dots if d.group == group]
        x, y = [dot.x for _, dot in dots], [row + dot.y for row, dot in dots]
        look_of = {"color": turn(COLOURS, look), "marker": turn(MARKERS, look)}
        axes.scatter(x, y, 14, alpha=0.75, linewidths=0, label=group, **look_of)
    for row, strip in enumerate(chart.strips):
        if (middle := strip.middle) is not None:
            reach = [[middle.at - middle.low], [middle.high - middle.at]]
            fill = "black" if middle.sure else "white"
            style: dict[str, Any] = {
                "color": "black",
                "marker": "D",
                "markerfacecolor": fill,
                "capsize": 2.5,
            }
            axes.errorbar([middle.at], [row], xerr=reach, markersize=5, linewidth=1, **style)
    names = [short(strip.name, OF_A_ROW) + strip.after for strip in chart.strips]
    axes.set_yticks(range(len(names)), names, fontsize=min(7, 7 * MOST_ROWS / len(names)))
    axes.set_ylim(len(chart.strips) - 0.5, -0.5)
    if chart.sides is not None:
        axes.axvline(0, linewidth=1, color=GREY)
        for text, side in zip(chart.sides, ("right", "left"), strict=True):
            words = f"{text} " if side == "right" else f" {text}"
            place = axes.get_xaxis_transform()
            axes.text(0, 1, words, ha=side, va="bottom", transform=place, fontsize=7, color=GREY)
    axes.set(xlabel=wrapped(chart.x_title))
    axes.xaxis.get_major_locator().set_params(nbins=FEW_TICKS)
    axes.grid(axis="x", alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if beside(chart):
        _legend_beside(axes, chart, title=chart.group_title, title_fontsize=7, alignment="left")


def _numbers(values: Sequence[float]) -> NDArray[np.float64]:
    """Values as floats; None, for unmeasured values, becomes NaN."""
    return np.array(values, dtype=np.float64)
