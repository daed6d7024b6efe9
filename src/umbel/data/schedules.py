"""Schedules: which concept each client has in each step of time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, nearest
from umbel.files.reading import read_text
from umbel.settings import whole_path

Concepts: TypeAlias = NDArray[np.int64]
"""Numbers of concepts."""

FEDDRIFT = {
    "A": "0000000000 0100000000 0100000100 0111010100 0111010110 1011011010 "
    "1001001010 1000101011 1000101001 1000101001 1000101001",
    "B": "0000000000 1110000000 1112220000 2212222100 2221222130 2321233130 "
    "3321133210 3033133213 0033313223 0003311322 0003311322",
    "C": "0000000000 1112220000 1112220030 2211222130 2221232130 2321133130 "
    "3323133210 3033313213 0033313223 0003311322 0003311322",
    "D": "1112220033 1112220033 2211222032 2221232002 2321133002 3323133202 "
    "3033313201 0033313221 0003311321 0003311321 0003311321",
    "E": "0000000000 1113330000 1113330020 3311333120 3331323120 3231122120 "
    "2232122310 2022212312 0022212332 0002211233 0002211233",
    "F": "0000000000 0000000000 1112220000 1112220030 2211222130 2221232130 "
    "2321133133 3323133213 3033313213 0033312223 0033312223",
}
"""The schedules of ten clients in Jothimurugesan et al. 2023: a row of digits for each batch."""

NAMES = ("sudden", "staggered", "incremental", "recurrent", "random", *FEDDRIFT)
"""The schedules that have a name."""


def concepts_of(
    schedule: str | tuple[tuple[int, ...], ...],
    steps: int | None,
    clients: int,
    num_concepts: int,
    rng: np.random.Generator,
) -> Concepts:
    """Return the concept (M, T) of each client in each of T batches of examples.

    There is a batch for each of the `steps` to train in, and a last one for the test alone. A
    schedule is rows of numbers, or a text file of them with commas or blanks: a row for each batch,
    with a number for each client. Or it is one of these names, for 10 steps unless it is told:

    - `sudden`: halfway all clients change from concept 0 to one of the others, taken in turn.
    - `staggered`: clients change so, but one after another, at equal distances.
    - `incremental`: all clients go through the concepts together, in order and at equal distances.
    - `recurrent`: all clients change as in `sudden`, after a third, and back after two thirds.
    - `random`: clients begin with concept 0, and every second step each draws its next concept.
    - `A`: ten clients with two concepts, which they change at different times, some of them back.
    - `B`: ten clients with four concepts, which appear one after another.
    - `C`: as B, but two of the concepts appear at once.
    - `D`: ten clients that have four concepts from the start.
    - `E`: C with other numbers for the concepts.
    - `F`: much as C, a step later.

    A to F are those of FedDrift (Jothimurugesan et al. 2023), and `random` draws as its R0 to R9.
    Raises `UsageError` for a schedule that does not fit the clients, steps or concepts.

    >>> from umbel.data.schedules import concepts_of
    >>> concepts_of("staggered", 5, 3, 2, np.random.default_rng(0))
    array([[0, 1, 1, 1, 1, 1],
           [0, 0, 1, 1, 1, 1],
           [0, 0, 0, 1, 1, 1]])
    """
    named, field = f"schedule {schedule!r}", "schedule"
    if not isinstance(schedule, str):
        named, field = "the table of concepts", "concepts"
    if isinstance(schedule, str) and schedule in FEDDRIFT:
        rows = [[int(digit) for digit in row] for row in FEDDRIFT[schedule].split()]
    elif isinstance(schedule, str) and schedule in NAMES:
        batches = (10 if steps is None else steps) + 1
        rows = _generated(schedule, batches, clients, num_concepts, rng).tolist()
    elif isinstance(schedule, str):
        rows = _read(schedule)
    else:
        rows = [list(row) for row in schedule]
    check(len(rows) >= 2, field, f"{len(rows)} rows", "two or more: the last is a test's")
    for place, row in enumerate(rows):
        expected = f"the {len(row)} that {named} has in row {place}"
        check(len(row) == clients, "clients", clients, expected)
    most = len(rows) - 1
    expected = f"at most {most}, as {named} has {len(rows)} rows and the last one is a test's"
    check(steps is None or steps <= most, "steps", steps, expected)
    concepts = np.array(rows[: None if steps is None else steps + 1], dtype=np.int64).T
    wrong = concepts[(concepts < 0) | (concepts >= num_concepts)]
    if len(wrong):
        said = f"{named} has concept {wrong[0]}, and the scenario {num_concepts} concepts, from 0"
        raise UsageError(f"{field}: {said} on")
    return concepts


def _generated(
    name: str, batches: int, clients: int, num_concepts: int, rng: np.random.Generator
) -> Concepts:
    """The rows (T, M) of a named schedule for any number of clients and batches."""
    step, client = np.indices((batches, clients))
    other = 1 + client % max(num_concepts - 1, 1)
    if name == "incremental":
        return step * num_concepts // batches
    if name == "random":
        drawn = rng.integers(num_concepts, size=(batches // 2 + 1, clients))
        drawn[0] = 0
        # The batch for the test has the concepts of the last step.
        rows: Concepts = drawn[np.minimum(np.arange(batches), batches - 2) // 2]
        return rows
    changed = {
        "sudden": step >= batches // 2,
        "staggered": step > client * (batches - 2) // clients,
        "recurrent": (3 * step >= batches) & (3 * step < 2 * batches),
    }
    return np.where(changed[name], other, 0)


def _read(schedule: str) -> list[list[int]]:
    """The rows of a file. Raises `UsageError` if it has none."""
    path = whole_path(schedule)
    if not path.is_file():
        hint = nearest(Path(schedule).name, NAMES)
        raise UsageError(f"schedule: {schedule!r} is not a known name or a file; {hint}")
    lines = read_text(path).splitlines()
    rows = []
    for number, line in enumerate(lines, start=1):
        numbers = re.split(r"[,;\s]+", line.strip(" ,;\t\r"))
        fine = all(re.fullmatch(r"\d{1,9}", each) for each in numbers)
        blank = not line.strip()
        check(fine or blank, f"{path}: line {number}", line, "a whole number for each client")
        rows += [] if blank else [[int(each) for each in numbers]]
    return rows
