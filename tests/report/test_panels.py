"""Figures of a report: names of their files, marks in them, and the numbers beside them."""

from __future__ import annotations

import pytest

from umbel.report.figures.charts import Chart
from umbel.report.figures.panels import Panel
from umbel.summary import three_digits


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Clients' features after round 3", "clients-features-after-round-3"),
        ("macro_f1 (of all)", "macro-f1-of-all"),
        ("%!", "figure"),
    ],
)
def test_files_of_figures_are_named_by_letters_and_digits_of_any_script(
    title: str, name: str
) -> None:
    assert Panel(Chart(title, "x", "y", ())).file_name == name


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.00005, "0.00005"), (12345.6, "12346")],
)
def test_numbers_beside_figures_have_no_powers_of_ten(value: float, text: str) -> None:
    assert three_digits(value) == text
