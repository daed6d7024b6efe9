"""What the options --at and --reach of `umbel show` ask for."""

from __future__ import annotations

from umbel.checks import check
from umbel.runs.budget import reaches
from umbel.runs.rows import Table, Value
from umbel.runs.run_tables import OF_A_RUN, Results


def rounds_of(at: str, most: int) -> list[int]:
    """The rounds that a list such as 5,10,30 names, of a run with so many."""
    numbers = at.replace(" ", "").split(",")
    check(all(map(str.isdecimal, numbers)), "--at", at, "of the form 5,10,30")
    for number in map(int, numbers):
        check(1 <= number <= most, "--at", number, f"a round of the run: 1 to {most}")
    return [int(number) for number in numbers]


def goal_of(reach: str) -> tuple[str, float]:
    """The measure and the value that a text such as purity=0.9 names."""
    measure, _, goal = reach.partition("=")
    check(goal.replace(".", "", 1).isdecimal(), "--reach", reach, "of the form purity=0.9")
    return measure, float(goal)


def course_rows(found: Results, at: str | None, reach: str | None) -> Table:
    """The rounds that are asked for; or, of each run, the first that reached a goal."""
    rows = list(found.rounds)
    if at is not None:
        wanted = rounds_of(at, max((row["round"] for row in rows), default=0))
        rows = [row for row in rows if row["round"] in wanted]
    if reach is None:
        return Table.of(rows, found.rounds.columns)
    measure, goal = goal_of(reach)
    known = [name for name in found.rounds.columns if name not in OF_A_RUN]
    check(measure in known, "--reach", measure, f"any of {', '.join(known)}")
    first: dict[str, Value] = {}
    for row in rows:
        if row[measure] is not None and reaches(measure, row[measure], goal):
            first.setdefault(row["folder"], row["round"])
    return Table.of(
        {**{name: run[name] for name in OF_A_RUN}, "measure": measure, "goal": goal}
        | {"round": first.get(run["folder"])}
        for run in found.runs
    )
