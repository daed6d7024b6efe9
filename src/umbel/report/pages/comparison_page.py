"""The report of several runs, method by method."""

from __future__ import annotations

from collections.abc import Sequence

from umbel.report import comparison as comparing
from umbel.report.best_method import lead_cells, leads, verdict
from umbel.report.figures.panels import Panel
from umbel.report.gains_per_client import fates
from umbel.report.pages.rendering import page
from umbel.report.rerun_commands import again
from umbel.result.outcomes import Methods, by_method, over_seeds
from umbel.result.run import Result
from umbel.result.statistics.contenders import contenders
from umbel.result.statistics.measures import measure_of
from umbel.result.statistics.pairs import Pair, standing
from umbel.summary import counted

MEANINGS = {
    "accuracy": "accuracy is the mean over clients of each one's test accuracy",
    "loss": "loss is the mean over clients of each one's test loss",
    "worst tenth": "worst tenth is the mean of the tenth of clients that fare worst",
    "worse than alone": "worse than alone: the share of clients that are worse off than with "
    "local-only training",
    "worse than one model": "worse than one model: the share of clients that are worse off than "
    "with FedAvg",
    "surely": "surely: by more than chance explains for its number of test examples, except for 1 "
    "client in 20",
    "AMI": "AMI: agreement of clusters with what is known of clients, 1 if they are the same and "
    "0 for chance",
    "MB": "MB are of the whole run",
    "seconds": "seconds are of the whole run",
}
"""What columns mean, by the first words of their heads."""


def comparison_page(
    name: str, runs: Sequence[Result], without: Sequence[str]
) -> tuple[str, list[Panel]]:
    """The page about runs with at least one finished round, and its figures.

    `without` names the folders of runs without such a round.
    """
    finished = [run for run in runs if run.finished]
    shown = finished or list(runs)
    methods = by_method(shown)[::-1]  # the best first
    measure = measure_of(shown)
    rivals = contenders(shown, measure)
    order = standing(rivals, measure)
    against = fates(rivals, measure)
    ends, courses = list(comparing.ends(methods)), list(comparing.courses(methods))
    beside = [*leads(order, measure), *ends]
    sheet = comparing.sheet(methods)
    text = page(
        "comparison.html",
        f"{name}: {counted(len(methods), 'method')}",
        counts=_counts(methods, finished or runs),
        left_out=_left_out(runs, finished, without),
        verdict=verdict(order, measure) if len(methods) > 1 else "",
        sheet=sheet,
        caption=_caption(sheet.heads, methods),
        beside=beside,
        fates=against,
        order=order,
        controlled=list(map(_pair, order.controlled.values())),
        pairs=list(map(_pair, order.others if order.left_out else order.pairs)),
        measure=measure,
        courses=courses,
        again=again(name, methods),
    )
    return text, [*beside, *(each.panel for each in against), *courses]


def _counts(methods: Methods, runs: Sequence[Result]) -> str:
    """How many methods and seeds there are."""
    seeds = sorted({run.experiment.seed for run in runs})
    numbers = ", ".join(map(str, seeds))
    each = sorted({len(runs) for _, runs in methods})
    if each == [len(seeds)]:
        many = counted(len(seeds), "seed")
    else:
        many = (f"{each[0]} to " if len(each) > 1 else "") + f"{counted(each[-1], 'seed')} each"
    return f"{counted(len(methods), 'method')}, {many} ({numbers})."


def _left_out(
    runs: Sequence[Result], finished: Sequence[Result], without: Sequence[str]
) -> dict[str, Sequence[str]]:
    """What is said of runs that are not finished -> their names."""
    left = [run.folder.path.name for run in runs if run not in finished]
    if finished:
        return {"Not finished, so they are left out": sorted([*left, *without])}
    return {
        "Not finished, so what follows is so far": left,
        "Without a finished round, so they are left out": without,
    }


def _caption(heads: Sequence[str], methods: Methods) -> str:
    """What the columns of the table mean, and over what each number is a mean."""
    finished = all(run.finished for _, runs in methods for run in runs)
    when = "after the last round" + ("" if finished else " that was evaluated")
    said = [", ".join(filter(None, (over_seeds(methods), when)))]
    if len(methods) > 1 and {"accuracy", "loss"} & {*heads}:
        said.append("the best method is in the first row, which may be due to chance")
    # With a space at the end, as "losses of a client" does not begin with the word "loss".
    starts = [f"{head} " for head in heads]
    said += [m for of, m in MEANINGS.items() if any(h.startswith(f"{of} ") for h in starts)]
    return " ".join(f"{each[0].upper()}{each[1:]}." for each in said)


def _pair(pair: Pair) -> list[str]:
    """The two methods, and by how much the first is ahead."""
    return [pair.better.name, pair.other.name, *lead_cells(pair)]
