"""Advice as one page for a browser."""

from __future__ import annotations

from collections.abc import Iterator

from umbel.advice.gain_per_client import FEWEST_EXAMPLES
from umbel.advice.gains import SURE
from umbel.advice.summary import Summary
from umbel.report.figures.charts import Chart, Dot, Line, Middle, Strip, Strips, swarm
from umbel.report.figures.panels import Panel
from umbel.report.html.markup import Markup, Part, element, join, table
from umbel.report.html.page import Section, figures, lines, page


def advice_page(name: str, told: Summary, toml: str, to_run: str) -> str:
    """The page; `toml` is the experiment to run next, empty where there is no file for it.

    `to_run` is the command that runs it, by the absolute path of its file.
    """
    head: list[Part] = [element("p", element("strong", told.sentences[0]), id="verdict")]
    sections = [
        Section("Why", (lines(*told.sentences[1:]),)),
        Section("How clients differ", _differences(told)),
        Section("The race", (_race(told), figures([_gains(told), _course(told)]))),
        Section("Client by client", (_clients(told), figures([_fates(told)]))),
    ]
    if toml:
        # Paths in it, as of the data, count from where the command is used.
        where = f"Where umbel advise was used, {to_run} runs this experiment:"
        again = (element("p", where), element("pre", toml, id="command"))
        sections.append(Section("What to run next", again))
    return page(f"{name}: should I cluster?", head, sections)


def _differences(told: Summary) -> tuple[Part, ...]:
    rows = [
        (
            each.kind,
            "yes" if each.found else "no",
            f"{each.p_value:.3f}",
            f"{each.nearness:.0%}",
            str(each.dimensions),
        )
        for each in told.differences
    ]
    heads = ("clients differ in", "beyond chance", "p-value", "nearer", "directions")
    caption = (
        "Each client's training examples are dealt into two halves. Nearer: how often the other "
        "half of a client is nearer than half of another client, 50% by chance. The p-value is by "
        "permutation of examples between clients. Directions: in how many ways clients differ "
        f"beyond noise. Groups that their examples show: {told.num_groups}."
    )
    return (table(heads, rows, id="differences"), element("p", caption, class_="quiet"))


def _race(told: Summary) -> Markup:
    heads = (
        *("way", "validation loss", "gain over one model", "95% interval", "accuracy"),
        *("best round", "MB", "test loss", "test accuracy", "stopped"),
    )
    rows = [
        (
            each.name + (" ← advised" if each.name == told.chosen else ""),
            number(each.loss),
            number(each.gain),
            "" if each.low is None or each.gain is None else f"{each.low:.3g} to {each.high:.3g}",
            number(each.accuracy),
            str(each.best_round),
            f"{each.megabytes:.3g}",
            number(each.test_loss),
            number(each.test_accuracy),
            each.stopped,
        )
        for each in told.contenders
    ]
    caption = (
        f"Means over clients, intervals over {told.interval_over}. The gain of fine-tuning is over "
        "one model trained for as many epochs. Ways are compared on validation examples; "
        "the test was opened once, for one model, training alone, and the way that is advised."
    )
    return join(table(heads, rows, id="race"), element("p", caption, class_="quiet"))


def _gains(told: Summary) -> Panel:
    strips = []
    for each in reversed([row for row in told.contenders if row.gain is not None]):
        assert each.gain is not None
        low, high = (each.gain if end is None else end for end in (each.low, each.high))
        sure = low > 0 or high < 0
        middle = Middle(each.gain, low, high, sure=sure and each.low is not None, text=each.name)
        strips.append(Strip(each.name, (), middle=middle))
    note = "How much lower the validation loss is, mean over clients, with its 95% interval."
    sides = ("worse than one model", "better than one model")
    title = "Gain over one model"
    chart = Strips(title, "gain in validation loss", tuple(strips), sides=sides)
    return Panel(chart, note)


def _course(told: Summary) -> Panel:
    drawn = tuple(
        Line(each.name, tuple(map(float, each.course_rounds)), each.course_losses)
        for each in told.contenders
        if len(each.course_rounds) > 1 and not each.name.endswith("fine-tuned")
    )
    return Panel(Chart("Round by round", "round", "validation loss, mean over clients", drawn))


def _clients(told: Summary) -> Markup:
    rows = [
        (each.name, str(each.cluster), number(each.gain), number(each.error), each.fate)
        for each in told.clients
    ]
    heads = ("client", "cluster", "gain over one model", "standard error", "beyond chance")
    caption = (
        f"Gains and losses beyond chance have a p-value of at most {SURE:g}, for each client by "
        "itself. The error and the p-value are by Student's t over its validation examples, of "
        f"which fewer than {FEWEST_EXAMPLES} can't tell."
    )
    clients = table(heads, rows, tall=True, id="clients")
    return join(clients, element("p", caption, class_="quiet"))


def _fates(told: Summary) -> Panel:
    clusters = sorted({each.cluster for each in told.clients})
    strips = tuple(Strip(f"cluster {k}", tuple(_dots(told, k))) for k in reversed(clusters))
    sides = ("worse than one model", "better than one model")
    what = "gain in validation loss over one model"
    chart = Strips("Who gains", what, strips, "beyond chance", sides=sides)
    return Panel(chart, "A dot a client.")


def _dots(told: Summary, cluster: int) -> Iterator[Dot]:
    """The clients of a cluster, beside those that they would hide."""
    members = [(c, c.gain) for c in told.clients if c.cluster == cluster and c.gain is not None]
    for (client, gain), aside in zip(members, swarm([g for _, g in members]), strict=True):
        kind = client.fate or "can't tell"
        yield Dot(gain, aside, 1, kind, f"{client.name}\n{gain:.3g}")


def number(value: float | None) -> str:
    """A measure with four digits, or nothing."""
    return "" if value is None else f"{value:.4g}"
