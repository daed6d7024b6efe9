"""Figures as files: every kind is drawn, and the same figure is the same file."""

from __future__ import annotations

import math
import sys
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
from umbel.report.figures.drawing import FORMATS, draw, drawn, short, spec

pytest.importorskip("vl_convert", reason="the extra umbel[plot] is not installed")


def test_without_the_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "vl_convert", missing)
    for write in (
        lambda: draw(FIGURES, tmp_path / "a.svg"),
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
        clusters=("0", "1"),
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
    if suffix != ".pdf":  # vl-convert puts its objects in another order each time
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


def test_names_of_clients_are_cut_in_their_middle_and_stay_different() -> None:
    names = {short(f"{'x' * 90} {n}", 28) for n in range(12)}
    assert len(names) == 12
    assert {len(name) for name in names} == {28}
    assert short("Zürich-Süd", 28) == "Zürich-Süd"


def test_what_is_counted_and_rounds_have_whole_numbers_beside_them() -> None:
    line = Line("a", ROUNDS, (1, 2, 3, 3))
    places = spec(Chart("Clusters", "round", "", (line,), counts=True))["layer"][-1]["encoding"]
    assert places["x"]["axis"]["tickMinStep"] == places["y"]["axis"]["tickMinStep"] == 1


def test_a_logarithmic_axis_names_whole_numbers_if_they_are_few() -> None:
    def named(*values: float) -> object:
        lines = (Line("a", values, (0.5,) * len(values)),)
        chart = spec(Chart("", "clients", "seconds", lines, log_x=True))
        return chart["layer"][-1]["encoding"]["x"]["axis"].get("values")

    assert named(2.0, 4.0, 8.0) == [2, 4, 8]
    assert named(0.230928, 0.461856) is None


def test_a_point_without_a_line_beside_it_is_marked_in_a_long_line() -> None:
    y = [0.5] * 100
    y[41] = y[43] = math.nan
    rows = spec(Chart("", "", "", (Line("a", tuple(map(float, range(100))), tuple(y)),)))["data"][
        "values"
    ]
    assert [row["x"] for row in rows if row["marked"]] == sorted([*range(0, 100, 10), 42])
