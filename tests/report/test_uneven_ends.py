"""Curves of seeds that ended at different rounds are of the same seeds all along."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import umbel
from umbel.report import comparison as comparing
from umbel.report.figures.charts import SHARE


def run(*accuracies: float | None) -> Any:
    records = [umbel.Record(number, accuracy=value) for number, value in enumerate(accuracies)]
    return SimpleNamespace(records=records, validated=False, has_groups=False)


def test_a_curve_ends_where_the_first_seed_did() -> None:
    seeds = [run(0.2, 0.4), run(0.4, 0.6, 0.9), run(0.3, 0.5, 0.8, 1.0)]
    line = comparing._course("a", seeds, lambda r: r.accuracy, SHARE)
    assert line.x == (1.0, 2.0)
    assert [round(y, 6) for y in line.y] == [0.3, 0.5]


def test_a_seed_that_never_measured_it_does_not_end_a_curve() -> None:
    line = comparing._course("a", [run(None), run(0.4, None, 0.6)], lambda r: r.accuracy, SHARE)
    assert (line.x, line.y) == ((1.0, 3.0), (0.4, 0.6))
