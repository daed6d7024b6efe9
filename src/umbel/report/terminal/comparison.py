"""Tables for the terminal: evenness of clients' results, and leads between methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from umbel.checks import printable
from umbel.report.best_method import lead_cells
from umbel.report.evenness import attributes_of, evenness
from umbel.report.terminal.tables import frameless, row
from umbel.result.outcomes import by_method
from umbel.result.run import Result
from umbel.result.statistics.contenders import contenders
from umbel.result.statistics.measures import Measure, measure_of
from umbel.result.statistics.pairs import MethodStanding, Pair, standing

MOST_ATTRIBUTES = 4
"""Attributes that fit 80 columns."""

WORSE = (
    "worse than alone, than one model: share of clients worse off than with local-only training, "
    "than with FedAvg"
)
SURELY = "in brackets: by more than chance explains, except for one client in 20"


def statistics(runs: Sequence[Result], judge: str | None = None) -> Iterator[Table]:
    """Tables for finished runs of several methods beyond means; each fits 80 columns.

    A table of which nothing is known, as without test examples, is left out. Methods are compared
    by accuracy, or without it by loss, or by what `judge` names. Raises `UsageError` for a name
    that cannot be compared, whatever the number of methods.
    """
    measure = measure_of(runs, judge)
    if len(by_method(runs)) > 1:
        if (even := clients(runs)) is not None:
            yield even
        order = standing(contenders(runs, measure), measure)
        if any(pair.lead is not None for pair in order.others):
            yield differences(order, measure)
        if any(pair.lead is not None for pair in order.controlled.values()):
            yield controlled(order)


def clients(runs: Sequence[Result]) -> Table | None:
    """One row per method, the best last: worst clients, spread, and worse-off clients.

    None where nothing of that is known.
    """
    methods = by_method(runs)
    by_loss = all(run.by_loss for run in runs)
    several = evenness(methods)
    columns = [
        ("worst\ntenth", [each.mean(lambda f: f.worst_tenth, by_loss) for each in several]),
        ("spread", [each.mean(lambda f: f.spread, by_loss) for each in several]),
        ("worse than\nalone", [each.worse(lambda f: f.alone) for each in several]),
        ("worse than\none model", [each.worse(lambda f: f.one_model) for each in several]),
    ]
    attributes = attributes_of(several)
    columns += [
        (f"AMI\n{name[:10]}", [each.agrees(name) for each in several])
        for name in attributes[:MOST_ATTRIBUTES]
    ]
    known = [(head, cells) for head, cells in columns if set(cells) != {"-"}]
    if not known:
        return None
    what = "loss" if by_loss else "accuracy"
    notes = [f"worst tenth: mean {what} of the worst tenth of clients"]
    notes += [f"spread: standard deviation of {what} over clients"]
    worse = [cell for head, cells in known if head.startswith("worse") for cell in cells]
    notes += [WORSE] if worse else []
    notes += [SURELY] if any("(" in cell for cell in worse) else []
    notes += ["AMI: agreement of clusters with what is known of clients"] if attributes else []
    table = frameless(caption="; ".join(notes))
    table.collapse_padding = True
    table.add_column("method", overflow="fold")
    for head, _ in known:
        table.add_column(Text(printable(head, "\n")), justify="right", no_wrap=True)
    for number, (name, _) in enumerate(methods):
        row(table, name, *(cells[number] for _, cells in known))
    return table


def differences(order: MethodStanding, measure: Measure) -> Table:
    """The lead of the method with the best mean over each other method, the smallest first."""
    count = max(pair.of for pair in order.pairs)
    pairs = f"corrected for all {count:,} pairs of methods"
    if not order.all_judged:
        pairs = "corrected for the pairs of methods with results enough to judge by"
        pairs += ", and those not shown count as equal" if order.left_out else ""
    elif order.left_out:
        verbs = "is not shown and counts" if order.left_out == 1 else "are not shown and count"
        pairs += f", of which {order.left_out:,} {verbs} as equal, so that p may be too large"
    elif count == 1:
        pairs = "as there is one pair"
    caption = (
        f"ahead: {measure.gain()}, paired over clients and seeds; p: probability of such a lead "
        f"by chance; Holm: the same, {pairs}"
    )
    rows = [(pair.other.name, pair) for pair in order.others]
    return _leads(f"{order.leader.name} over", rows, caption)


def controlled(order: MethodStanding) -> Table:
    """The lead of each clustered method over random clusters of the same sizes."""
    return _leads("over its random clusters", list(order.controlled.items()))


def _leads(head: str, rows: Sequence[tuple[str, Pair]], caption: str | None = None) -> Table:
    table = frameless(caption=caption)
    table.collapse_padding = True
    table.add_column(Text(printable(head)), overflow="fold")
    for name in ("ahead", "95% interval", "p", "Holm"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, pair in rows:
        row(table, name, *lead_cells(pair))
    return table
