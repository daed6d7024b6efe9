"""Figures as files: every kind is drawn, and the same figure is the same file."""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from umbel.checks import UsageError
from umbel.report.figures.charts import (
    Branch,
    Chart,
    Dot,
    Figure,
    Heatmap,
    Label,
    Line,
    Mark,
    Middle,
    Scatter,
    Strip,
    Strips,
    swarm,
)
from umbel.report.figures.matplotlib_files import FORMATS
from umbel.report.figures.matplotlib_layout import log_ticks, short
from umbel.report.figures.to_matplotlib import draw, draw_each, drawn

pytest.importorskip("matplotlib", reason="the extra umbel[plot] is not installed")


def test_without_the_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "matplotlib", missing)
    for write in (
        lambda: draw(FIGURES, tmp_path / "a.svg"),
        lambda: draw_each([(FIGURES[0], tmp_path / "a.svg")]),
        lambda: drawn(FIGURES),
    ):
        with pytest.raises(UsageError, match=r'pip install "umbel\[plot\]"'):
            write()


ROUNDS = (1.0, 2.0, 3.0, 4.0)

FIGURES: list[Figure] = [
    Chart(
        "Accuracy",
        "round",
        "accuracy",
        (
            Line("flacc", ROUNDS, (0.1, math.nan, 0.5, 0.6), (0, 0, 0.4, 0.5), (0.2, 0.2, 0.6, 1)),
            Line("flacc", (4.0,), (0.7,), published=True),
        ),
        marks=(Mark(3, "separation"),),
    ),
    Chart(
        "Settings",
        "",
        "ARI",
        (Line("ours", (0.0, 1.0), (0.5, 0.9), (0.4, 0.8), (0.6, 1.0), points=True),),
        categories=("rotated", "swapped"),
    ),
    Chart("Sizes", "clients", "seconds", (Line("a", (1.0, 10.0), (1.0, 2.0)),), log_x=True),
    Heatmap(
        "Similarity",
        "cosine",
        np.eye(2),
        ("a", "b"),
        ("a", "b"),
        tree=(Branch((0, 0, 1, 1), (0, 1, 1, 0)),),
    ),
    Scatter("Map", "", "", (Dot(0, 0, 3, "0", "a"), Dot(1, 0, 5, "1", "b")), "group"),
    Scatter("Bare", "", "", (Dot(0, 0, 1, "", "a"),), labels=(Label(0, 0, "k"),), is_map=True),
    Strips(
        "Gains",
        "accuracy",
        (
            Strip("flacc", (Dot(0.1, 0, 1, "more", "a"), Dot(-0.1, 0.1, 1, "less", "b"))),
            Strip("ifca", (), Middle(0.1, -0.1, 0.3, sure=False)),
        ),
        "gain",
        sides=("worse", "better"),
    ),
]


@pytest.mark.parametrize(
    "suffix", [pytest.param(s, marks=pytest.mark.long if s != ".svg" else ()) for s in FORMATS]
)
def test_every_kind_of_figure_is_drawn_and_the_same_twice(suffix: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    for file in (first, second):
        draw(FIGURES, file)
    assert first.stat().st_size > 10_000
    assert first.read_bytes() == second.read_bytes()


def test_one_figure_alone_and_files_of_another_kind(tmp_path: Path) -> None:
    draw(FIGURES[:1], tmp_path / "one.svg")
    with pytest.raises(UsageError, match=r"ends in \.png, \.svg, \.pdf"):
        draw(FIGURES, tmp_path / "figures.jpg")


def test_groups_of_dots_are_in_the_order_of_their_numbers() -> None:
    dots = tuple(Dot(0, 0, 1, group, "") for group in ("10", "noise", "9", "all"))
    assert Scatter("", "", "", dots).groups == ("9", "10", "all", "noise")


def test_dots_that_would_hide_each_other_are_moved_aside_within_their_row() -> None:
    assert swarm([]) == []
    assert swarm([0.5]) == [0]
    aside = swarm([0.1, 0.1, 0.1, 0.9])
    assert len(set(aside[:3])) == 3
    assert aside[3] == 0
    assert all(abs(each) < 0.5 for each in swarm([0.0] * 1000))


LONG = "lcfl lr=0.1 num_clusters=2 (random clusters)"


def chart(names: int) -> Chart:
    """A chart of so many lines."""
    lines = (Line(f"{LONG} {n}", ROUNDS, (0.1, 0.2, 0.3, 0.4)) for n in range(names))
    y_title = "test or validation accuracy, mean over clients"
    return Chart("Accuracy", "round", y_title, tuple(lines))


def strips(rows: int, sides: tuple[str, str] | None = None) -> Strips:
    """Rows with two groups of dots."""
    dots = (Dot(0.1, 0, 1, "mean over clients", ""), Dot(0.0, 0, 1, "worst client", ""))
    each = tuple(Strip(f"{LONG} {n}", dots) for n in range(rows))
    return Strips("Every seed", "accuracy", each, "each seed's", sides=sides)


def prices(values: tuple[float, ...], log: bool) -> Chart:
    """Dots at some places of an axis."""
    dots = Line("a", values, (0.5,) * len(values), points=True)
    return Chart("What it costs", "MB", "accuracy", (dots,), log_x=log)


def a_map(*places: tuple[float, float]) -> Scatter:
    """One cluster, with its label below."""
    dots, label = tuple(Dot(x, y, 1, "", "") for x, y in places), Label(1.7, -2.9, "cluster 0: 6")
    return Scatter("Who is in which cluster", "", "", dots, labels=(label,), is_map=True)


CROWDED: dict[str, Figure] = {
    "a map of one cluster": a_map((1.5, -1.3), (2.2, -1.9), (0.9, -2.3)),
    "many lines": chart(24),
    "many rows": strips(60),
    "long names of clients": Heatmap(
        "Similarity",
        "similarity",
        np.eye(12),
        tuple(f"{2 * LONG} {n}" for n in range(12)),
        tuple(f"{2 * LONG} {n}" for n in range(12)),
    ),
    "near values": prices((0.230928, 0.461856, 0.567, 0.6413, 2.07859), log=True),
}


def words_in(figure: Any) -> list[Any]:
    """The texts that are to be seen: not those of ticks beyond the ends of an axis."""
    words = []
    for axes in figure.axes:
        legend = axes.get_legend()
        words += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        words += [] if legend is None else [legend.get_title(), *legend.get_texts()]
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            low, high = sorted(axis.get_view_interval())
            ticks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
            words += [label for place, label in ticks if low <= place <= high]
    return [text for text in words if text.get_visible() and text.get_text()]


@pytest.mark.parametrize("name", CROWDED)
def test_every_word_is_inside_the_picture_and_apart_from_others(name: str) -> None:
    figure = drawn([CROWDED[name]])
    figure.draw_without_rendering()
    words = words_in(figure)
    boxes = [text.get_window_extent() for text in words]
    for text, box in zip(words, boxes, strict=True):
        inside = box.x0 >= 0 and box.y0 >= 0
        inside = inside and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert inside, text.get_text()
    for number, box in enumerate(boxes):
        for text, other in zip(words, boxes[:number], strict=False):
            assert not box.padded(-0.5).overlaps(other), (words[number], text)


def test_names_of_clients_are_cut_in_their_middle_and_stay_different() -> None:
    names = {short(f"{'x' * 90} {n}", 28) for n in range(12)}
    assert len(names) == 12
    assert {len(name) for name in names} == {28}
    assert short("Zürich-Süd", 28) == "Zürich-Süd"


def test_what_is_counted_and_rounds_have_whole_numbers_beside_them() -> None:
    line = Line("a", ROUNDS, (1, 2, 3, 3))
    figure = drawn([Chart("Clusters", "round", "", (line,), counts=True)])
    figure.draw_without_rendering()
    for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis):
        assert all(float(tick).is_integer() for tick in axis.get_ticklocs())


def test_a_logarithmic_axis_names_values_that_are_round_and_far_apart() -> None:
    assert log_ticks([2, 4, 8, 16, 32]) == [2, 4, 8, 16, 32]
    assert log_ticks([0.230928, 0.461856, 2.07859]) == [0.5, 1, 2]
    assert log_ticks([10, 11, 1000]) == [10, 100, 1000]
    assert log_ticks([2.13, 8.91]) == [3, 4, 5, 6, 7, 8]
    assert log_ticks([5.0, 5.0]) == [5]
    ticks = log_ticks([1e-6, 3.71e-4, 2.2e3])
    assert all(high / low == pytest.approx(10) for low, high in pairwise(ticks))
