"""The report of several runs, method by method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from umbel.report import comparison as comparing
from umbel.report.best_method import chance, leads, signed, verdict
from umbel.report.figures.panels import Panel
from umbel.report.gains_per_client import fates
from umbel.report.html.markup import Markup, Part, element, join, table
from umbel.report.html.page import Section, figures, page
from umbel.report.rerun_commands import again
from umbel.result.outcomes import Methods, by_method, over_seeds
from umbel.result.run import Result
from umbel.result.statistics.contenders import contenders
from umbel.result.statistics.measures import Measure, measure_of
from umbel.result.statistics.pairs import MethodStanding, Pair, standing
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
    methods = by_method(shown)
    measure = measure_of(shown)
    rivals = contenders(shown, measure)
    order = standing(rivals, measure)
    against = fates(rivals, measure)
    ends, courses = list(comparing.ends(methods)), list(comparing.courses(methods))
    beside = [*leads(order, measure), *ends]
    sections = [
        Section("Methods side by side", (_table(methods), figures(beside))),
        Section("Round by round", (figures(courses),)),
        Section("Run it again", tuple(again(name, methods))),
    ]
    if any(pair.lead is not None for pair in order.pairs):
        title = "Pairs of methods" if order.left_out else "Every pair of methods"
        sections.insert(1, Section(title, tuple(_pairs(order, measure))))
    if against:
        parts = [join(figures([each.panel]), each.tables) for each in against]
        sections.insert(1, Section("Client by client", tuple(parts)))
    head = _head(methods, runs, finished, without)
    if len(methods) > 1:
        head.append(element("p", verdict(order, measure), id="verdict"))
    panels = [*beside, *(each.panel for each in against), *courses]
    return page(f"{name}: {counted(len(methods), 'method')}", head, sections), panels


def _head(
    methods: Methods, runs: Sequence[Result], finished: Sequence[Result], without: Sequence[str]
) -> list[Part]:
    seeds = sorted({run.experiment.seed for run in finished or runs})
    numbers = ", ".join(map(str, seeds))
    each = sorted({len(runs) for _, runs in methods})
    if each == [len(seeds)]:
        many = counted(len(seeds), "seed")
    else:
        many = (f"{each[0]} to " if len(each) > 1 else "") + f"{counted(each[-1], 'seed')} each"
    counts = f"{counted(len(methods), 'method')}, {many} ({numbers})."
    parts: list[Part] = [element("p", counts)]
    left = [run.folder.path.name for run in runs if run not in finished]
    notes: dict[str, Sequence[str]]
    if finished:
        notes = {"Not finished, so they are left out": sorted([*left, *without])}
    else:
        notes = {
            "Not finished, so what follows is so far": left,
            "Without a finished round, so they are left out": without,
        }
    for what, names in notes.items():
        text = element("strong", f"{what}: {', '.join(names)}.")
        parts += [element("p", text, class_="notice", role="note")] if names else []
    return parts


def _table(methods: Methods) -> Markup:
    """The table, and its text in three formats."""
    sheet = comparing.sheet(methods)
    texts = {"Markdown": sheet.markdown, "CSV": sheet.csv, "LaTeX": sheet.latex}
    buttons = [
        element("button", f"copy as {kind}", type="button", data_copy=f"table-{kind.lower()}")
        for kind in texts
    ]
    areas = []
    for kind, text in texts.items():
        name = f"table-{kind.lower()}"
        box = element("textarea", text, id=name, readonly=True, spellcheck="false")
        areas.append(element("div", element("label", kind, for_=name), box))
    return join(
        table(sheet.heads, sheet.rows, id="methods"),
        element("p", _caption(sheet.heads, methods), class_="quiet"),
        element("div", *buttons, class_="tools"),
        element("details", element("summary", "the table as text"), *areas),
    )


def _caption(heads: Sequence[str], methods: Methods) -> str:
    """What the columns of the table mean, and over what each number is a mean."""
    finished = all(run.finished for _, runs in methods for run in runs)
    when = "after the last round" + ("" if finished else " that was evaluated")
    said = [", ".join(filter(None, (over_seeds(methods), when)))]
    if len(methods) > 1 and {"accuracy", "loss"} & {*heads}:
        said.append("the best method is in the last row, which may be due to chance")
    # With a space at the end, as "losses of a client" does not begin with the word "loss".
    starts = [f"{head} " for head in heads]
    said += [m for of, m in MEANINGS.items() if any(h.startswith(f"{of} ") for h in starts)]
    return " ".join(f"{each[0].upper()}{each[1:]}." for each in said)


def _pairs(order: MethodStanding, measure: Measure) -> Iterator[Part]:
    """Intervals of the difference of two methods, pairs with a control first."""
    heads = ("method", "other", "gain", "95% interval", "p", "p corrected (Holm)")
    if order.controlled:
        yield element("h3", "Clusters that were found against random ones of the same sizes")
        yield table(heads, map(_pair, order.controlled.values()), left=2)
    shown = order.others if order.left_out else order.pairs
    yield element("h3", "Pairs with the method of the best mean" if order.left_out else "All pairs")
    yield table(heads, map(_pair, shown), left=2, tall=True, id="pairs")
    caption = (
        f"Gain: {measure.gain()} of the method than of the other, on the same clients under the "
        "same seeds. "
        "The interval is the wider of a paired bootstrap over seeds and clients, and of a t "
        "interval; it is for this pair alone. The corrected p is for all pairs together: if it is "
        "below 0.05, the difference is more than chance even if it was chosen as the largest of "
        "all."
    )
    if order.left_out:
        verb = "is" if order.left_out == 1 else "are"
        caption += (
            f" {counted(order.left_out, 'other pair')} {verb} left out, as there are so many "
            "methods. The correction takes the two methods of such a pair for equal, so that its "
            "p may be too large, but not too small. umbel show with --rows differences --csv "
            "compares every pair."
        )
    yield element("p", caption, class_="quiet")


def _pair(pair: Pair) -> list[str]:
    names = [pair.better.name, pair.other.name]
    if pair.lead is None or not pair.known:
        return [*names, "-" if pair.lead is None else signed(pair.lead.mean), "-", "-", "-"]
    ends = f"{signed(pair.lead.low)} to {signed(pair.lead.high)}"
    return [*names, signed(pair.lead.mean), ends, chance(pair.lead.p_value), chance(pair.p_value)]
