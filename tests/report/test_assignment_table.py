"""The table of newcomers in the terminal."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console

from umbel.newcomers.assignment import Assignment
from umbel.report.terminal import results as terminal


def test_tied_newcomers_are_shown_in_the_cluster_that_files_give_them() -> None:
    scores = torch.ones(3, 40)
    scores[:, :20] = 2.0
    assigned = Assignment(("a", "b", "c"), scores, "training loss")
    printed = io.StringIO()
    Console(file=printed, width=120).print(terminal.assignment(assigned))
    rows = [line.split() for line in printed.getvalue().splitlines()]
    shown = {row[0]: int(row[1]) for row in rows if row and row[0] in "abc"}
    assert shown == assigned.clusters == {"a": 20, "b": 20, "c": 20}


@pytest.mark.parametrize(
    ("likely", "clusters", "said"),
    [
        (1.0, 1, "100%"),
        (1.0, 2, "> 99%"),
        (0.569, 2, "56%"),
    ],
)
def test_a_confidence_is_rounded_down(likely: float, clusters: int, said: str) -> None:
    confidence = torch.tensor([likely], dtype=torch.float64)
    assigned = Assignment(("a",), torch.ones(1, clusters), "training loss", confidence=confidence)
    column = next(c for c in terminal.assignment(assigned).columns if c.header == "confidence")
    assert [str(cell) for cell in column.cells] == [said]
