"""The options --at and --reach of `umbel show`."""

from __future__ import annotations

from collections.abc import Iterable

from umbel.checks import UsageError, check
from umbel.client.metrics import METRICS
from umbel.experiment.experiment import ExperimentSettings
from umbel.result.table import Table, Value
from umbel.result.tables import OF_A_RUN, Results
from umbel.run.metrics import judged, names_of
from umbel.run.scores import VALIDATION
from umbel.run.stopping import AT_LEAST, AT_MOST, first_round, goal_in, reachable


def rounds_of(at: str, most: int) -> list[int]:
    """Return the rounds that a list such as 5,10,30 names, in a run of this length."""
    numbers = at.replace(" ", "").split(",")
    fine = all(number.isdecimal() and len(number) < 19 for number in numbers)
    check(fine, "--at", at, "of the form 5,10,30")
    for number in map(int, numbers):
        check(1 <= number <= most, "--at", number, f"a round of the run: 1 to {most}")
    return [int(number) for number in numbers]


def goal_of(reach: str, experiments: Iterable[ExperimentSettings]) -> tuple[str, float]:
    """The measure and the value that a text such as purity=0.9 names.

    Raises `UsageError` for a metric of the user's own, of which it is not known whether more or
    less is better.
    """
    measure, goal = goal_in(reach, "--reach", "purity=0.9")
    own = {name for each in experiments for name in names_of(each)} - set(METRICS)
    expected = "a measure of which more or less is known to be better: it is your own metric"
    check(measure.removeprefix(VALIDATION) not in own, "--reach", measure, expected)
    return measure, goal


def course_rows(results: Results, at: str | None, goal: tuple[str, float] | None) -> Table:
    """Table of the requested rounds; or of the first round of each run that reached a goal.

    If some runs were judged on validation examples, a column says which examples were used.
    """
    rows = list(results.rounds)
    if at is not None and goal is not None:
        raise UsageError("--at, --reach: give only one of them with --json or --csv")
    if at is not None:
        wanted = rounds_of(at, max((row["round"] for row in rows), default=0))
        rows = [row for row in rows if row["round"] in wanted]
    if goal is None:
        return Table.of(rows, results.rounds.columns)
    measure, value = goal
    known = reachable(rows)
    if not all(results.runs.column("finished")):  # what they have not measured so far
        known += [name for name in (*AT_LEAST, *AT_MOST) if name not in known]
    check(measure in known, "--reach", measure, f"any of {', '.join(known)}")
    values: dict[str, list[tuple[int, Value]]] = {run["folder"]: [] for run in results.runs}
    validated = set()
    for row in rows:
        values[row["folder"]].append((row["round"], judged(row, measure)))
        if row.get(f"{VALIDATION}{measure}") is not None:
            validated.add(row["folder"])
    examples = {
        folder: {"examples": "validation" if folder in validated else "test"} for folder in values
    }
    return Table.of(
        {**{name: run[name] for name in OF_A_RUN}, "measure": measure, "goal": value}
        | (examples[run["folder"]] if validated else {})
        | {"round": first_round(values[run["folder"]], measure, value)}
        for run in results.runs
    )
