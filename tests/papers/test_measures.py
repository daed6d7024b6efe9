"""What runs came to, in the papers' terms, from records written by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from umbel.papers.measures import KNOWN, OF_COURSES, OF_RECORDS, TITLES, series, title
from umbel.runs.records import Record


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
    assert OF_COURSES[name](course(ari=values)) == expected


def test_rounds_to_a_goal_are_as_many_as_it_took() -> None:
    assert OF_COURSES["pure_round"](course(purity=[0.5, 0.9, 0.8])) == 2.0
    assert OF_COURSES["pure_round"](course(purity=[0.5, 0.89])) is None
    assert OF_COURSES["accurate_round"](course(accuracy=[None, 0.7, 0.8])) == 3.0


def test_the_separation_is_the_first_round_of_separate_clusters() -> None:
    records = [Record(n, measures={"separated": float(n >= 2)}) for n in range(4)]
    assert OF_COURSES["separation"](records) == 3.0
    assert OF_COURSES["separation"](records[:2]) is None


def test_accuracies_are_percents_and_errors_decibels() -> None:
    record = Record(0, accuracy=0.5, loss=0.01)
    assert OF_RECORDS["accuracy"](record) == 50.0
    assert OF_RECORDS["nmse"](record) == pytest.approx(-20.0)
    assert OF_RECORDS["nmse"](Record(0)) is None
    assert series("accuracy", [record, Record(1)]) == [50.0, None]


def test_every_measure_has_a_title() -> None:
    assert set(TITLES) == KNOWN
    assert title("accuracy@5") == "accuracy, % after 5 rounds"
