"""Tables for the terminal: results of methods after some rounds, and rounds to a goal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from umbel.checks import check, printable
from umbel.report.terminal.tables import GAP, ROOM, add_columns, fitting, frameless, row
from umbel.result.outcomes import Methods, by_method, over_seeds, spread_text, uneven
from umbel.result.run import Result
from umbel.run.metrics import judged
from umbel.run.records import Record, measures_of
from umbel.run.scores import VALIDATION
from umbel.run.stopping import first_round, reachable

VALIDATED = "validation"
"""The examples, other than of the test, that methods may be judged on."""

UNLIKE = "rows on validation examples are before fine-tuning: do not compare them with others"


def course(runs: Sequence[Result], rounds: Sequence[int]) -> list[Table]:
    """Accuracy after some numbers of rounds, one row per method: mean and deviation over seeds.

    Rounds that do not fit 80 columns are in further tables; the last one has the caption.

    There is a dash unless all seeds of a method were evaluated in the last of these rounds.

    For regression, which has none, it is the loss. Where clients of a method have validation
    examples, it is that on these, and a column tells.
    """
    measure = "loss" if all(run.by_loss for run in runs) else "accuracy"
    methods, tables = by_method(runs), []
    counts = uneven(methods)
    columns = [
        (f"round {number}", [_after(seeded, number, measure) for _, seeded in methods])
        for number in rounds
    ]
    heads, caption, split = _heading(methods, measure)
    taken = [*([VALIDATED] if split else []), *(["seeds"] if counts else [])]
    for some in fitting(columns, ROOM - sum(len(each) + GAP for each in taken)):
        table = frameless(*heads)
        if counts:
            table.add_column("seeds", justify="right")
        add_columns(table, some)
        for number, (name, seeded) in enumerate(methods):
            many = [str(len(seeded))] if counts else []
            row(table, name, *split.get(name, ()), *many, *(cells[number] for _, cells in some))
        tables.append(table)
    for table in tables[-1:]:
        table.caption = caption
    return tables


def _after(seeded: Sequence[Result], number: int, measure: str) -> str:
    """A measure after so many rounds; a dash unless all seeds were evaluated in the last."""
    after = [r.judged(measure) for run in seeded for r in run.records[number - 1 : number]]
    known = [value for value in after if value is not None]
    return spread_text(known if len(known) == len(seeded) else [], 4, measure == "loss")


def reached(runs: Sequence[Result], measure: str, goal: float) -> Table:
    """The number of rounds of each method until a measure first reached a goal.

    Where it was measured on validation examples for some methods, a column tells.
    """
    known = reachable(dict(measures_of(record)) for run in runs for record in run.records)
    check(measure in known, "--reach", measure, f"any of {', '.join(known)}")
    methods = by_method(runs)
    heads, caption, split = _heading(methods, measure, "the seeds that reached it")
    table = frameless(*heads, caption=caption)
    table.add_column(Text(printable(f"rounds to {measure} {goal:g}")), justify="right")
    table.add_column("seeds that reached it", justify="right")
    for name, seeded in methods:
        values = [[(r.round + 1, _value(r, measure)) for r in run.records] for run in seeded]
        first = [first_round(each, measure, goal) for each in values]
        count = f"{len(first) - first.count(None)} of {len(first)}"
        row(table, name, *split.get(name, ()), spread_text(first, 1), count)
    return table


def _heading(
    methods: Methods, measure: str, which: str = ""
) -> tuple[list[str], str, dict[str, tuple[str]]]:
    """Heads of a column for methods, and of one for the examples of each where that matters.

    Also the caption, which says over which seeds the means are, and each method's examples.
    """
    validated = {
        name: any(_validated(record, measure) for run in seeded for record in run.records)
        for name, seeded in methods
    }
    some = any(validated.values())
    notes = [over_seeds(methods, which), UNLIKE if some and not all(validated.values()) else ""]
    caption = "; ".join(filter(None, notes))
    if not some:
        return ["method"], caption, {}
    examples = {name: (VALIDATED if on else "test",) for name, on in validated.items()}
    return ["method", "examples"], caption, examples


def _validated(record: Record, measure: str) -> bool:
    """Whether a round is evaluated on validation examples."""
    of_record = getattr(record, f"{VALIDATION}{measure}", None)
    return of_record is not None or record.measures.get(f"{VALIDATION}{measure}") is not None


def _value(record: Record, measure: str) -> float | None:
    if measure in vars(record):
        return record.judged(measure)
    return judged(record.measures, measure)
