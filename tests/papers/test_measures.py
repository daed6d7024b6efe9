"""What runs came to, in the papers' terms, from records written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from umbel.folder.run_folder import RunFolder
from umbel.papers.measures import measured, series, title
from umbel.run.records import Record

NOWHERE = RunFolder(Path("nowhere"))


def course(**columns: Sequence[float | None]) -> list[Record]:
    rows = zip(*columns.values(), strict=True)
    return [Record(n, **dict(zip(columns, row, strict=True))) for n, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("peak_round", [0.0, 0.5, 0.8, 0.8], 2.0),
        ("peak_round", [0.0, 0.0, -0.1, 0.0], None),
        ("optimal_round", [0.0, 1.0, 0.5, 1.0], 1.0),
        ("optimal_round", [0.0, 0.99, 0.5, 0.9], None),
    ],
)
def test_rounds_of_an_ari_are_counted_from_0(
    name: str, values: list[float], expected: float | None
) -> None:
    assert measured(name, NOWHERE, course(ari=values)) == expected


def test_rounds_to_a_goal_are_as_many_as_it_took() -> None:
    assert measured("pure_round", NOWHERE, course(purity=[0.5, 0.9, 0.8])) == 2.0
    assert measured("pure_round", NOWHERE, course(purity=[0.5, 0.89])) is None
    assert measured("accurate_round", NOWHERE, course(accuracy=[None, 0.7, 0.8])) == 3.0


def test_the_separation_is_the_first_round_of_separate_clusters() -> None:
    records = [Record(n, measures={"separated": float(n >= 2)}) for n in range(4)]
    assert measured("separation", NOWHERE, records) == 3.0
    assert measured("separation", NOWHERE, records[:2]) is None


def test_accuracies_are_percents_and_errors_decibels() -> None:
    record = Record(0, accuracy=0.5, loss=0.01)
    assert measured("accuracy", NOWHERE, [record]) == 50.0
    assert measured("nmse", NOWHERE, [record]) == pytest.approx(-20.0)
    assert measured("nmse", NOWHERE, [Record(0)]) is None
    assert series("accuracy", [record, Record(1)]) == [50.0, None]


def test_a_measure_after_some_rounds_is_of_the_last_of_them() -> None:
    records = course(ari=[0.1, 0.5, 1.0])
    assert measured("ari@2", NOWHERE, records) == 0.5
    assert measured("ari@4", NOWHERE, records) is None
    assert title("accuracy@5") == "accuracy, % after 5 rounds"
