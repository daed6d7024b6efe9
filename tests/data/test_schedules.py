from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from umbel.checks import UsageError
from umbel.data.schedules import FEDDRIFT, NAMES, concepts_of


def rows(schedule: str, steps: int | None, clients: int, concepts: int) -> list[str]:
    """The concepts of all clients, a text of digits for each batch."""
    found = concepts_of(schedule, steps, clients, concepts, np.random.default_rng(0))
    assert found.dtype == np.int64
    return ["".join(map(str, batch)) for batch in found.T]


def test_named_schedules_change_as_they_say() -> None:
    assert rows("sudden", 4, 4, 3) == ["0000", "0000", "1212", "1212", "1212"]
    assert rows("staggered", 4, 4, 3) == ["0000", "1200", "1210", "1212", "1212"]
    assert rows("incremental", 5, 2, 3) == ["00", "00", "11", "11", "22", "22"]
    assert rows("recurrent", 5, 3, 2) == ["000", "000", "111", "111", "000", "000"]


def test_random_clients_draw_a_concept_every_second_step() -> None:
    found = rows("random", None, 50, 4)
    assert len(found) == 11
    assert found[0] == found[1] == 50 * "0"
    assert found[2:8:2] == found[3:8:2]
    assert found[8] == found[9] == found[10]
    assert len(set(found)) == 5
    assert set(found[2]) == set("0123")


@pytest.mark.parametrize("name", FEDDRIFT)
def test_the_schedules_of_feddrift_are_for_ten_clients_and_ten_steps(name: str) -> None:
    concepts = 2 if name == "A" else 4
    found = rows(name, None, 10, concepts)
    assert len(found) == 11
    assert set("".join(found)) == set("0123"[:concepts])
    assert found[-1] == found[-2]
    assert rows(name, 3, 10, concepts) == found[:4]


@pytest.mark.parametrize(
    "text", ["0,1\n1,1\n1,0\n", "0 1\n1\t1\n\n1  0", "\ufeff0;1\r\n1;1\r\n1;0"]
)
def test_a_file_has_a_row_for_each_batch(tmp_path: Path, text: str) -> None:
    file = tmp_path / "drift.csv"
    file.write_text(text, encoding="utf-8")
    assert rows(str(file), None, 2, 2) == ["01", "11", "10"]
    assert rows(str(file), 1, 2, 2) == ["01", "11"]
    file.write_text("0,1\n0,one\n")
    with pytest.raises(UsageError, match=r"drift.csv: line 2: '0,one' is not a whole number for"):
        rows(str(file), None, 2, 2)


@pytest.mark.parametrize(
    ("schedule", "steps", "message"),
    [
        ("stagered", None, "schedule: 'stagered' is not a known name or a file; did you mean stag"),
        ("A", None, "clients: 2 is not the 10 that schedule 'A' has in row 0"),
        (((0, 1), (1,)), None, "clients: 2 is not the 1 that the table of concepts has in row 1"),
        (((0, 1), (1, 1)), 2, "steps: 2 is not at most 1, as the table of concepts has 2 rows"),
        (
            ((0, 1), (3, 1)),
            None,
            "concepts: the table of concepts has concept 3, and the scenario 3 c",
        ),
        (((0, 1),), None, "concepts: '1 rows' is not two or more"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(
    schedule: str | tuple[tuple[int, ...], ...], steps: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        concepts_of(schedule, steps, 2, 3, np.random.default_rng(0))


@pytest.mark.parametrize("name", NAMES)
def test_a_single_step_is_enough_for_every_name(name: str) -> None:
    assert len(rows(name, 1, 10, 4)) == 2
