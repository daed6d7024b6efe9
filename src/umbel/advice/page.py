"""Advice as one page for a browser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from umbel.advice.gain_per_client import FEWEST_EXAMPLES
from umbel.advice.gains import SURE
from umbel.advice.summary import Summary
from umbel.report.figures.charts import Chart, Dot, Line, Middle, Strip, Strips, swarm
from umbel.report.figures.panels import Panel
from umbel.report.pages.rendering import page


def advice_page(name: str, told: Summary, toml: str, to_run: str) -> str:
    """The page; `toml` is the experiment to run next, empty where there is no file for it.

    `to_run` is the command that runs it, by the absolute path of its file.
    """
    return page(
        "advice.html",
        f"{name}: should I cluster?",
        told=told,
        differences=_differences(told),
        race=_race(told),
        gains=[_gains(told), _course(told)],
        clients=_clients(told),
        fates=[_fates(told)],
        sure=SURE,
        fewest=FEWEST_EXAMPLES,
        toml=toml,
        to_run=to_run,
    )


def _differences(told: Summary) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
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
    return heads, rows


def _race(told: Summary) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
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
    return heads, rows


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


def _clients(told: Summary) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows = [
        (each.name, str(each.cluster), number(each.gain), number(each.error), each.fate)
        for each in told.clients
    ]
    heads = ("client", "cluster", "gain over one model", "standard error", "beyond chance")
    return heads, rows


def _fates(told: Summary) -> Panel:
    clusters = sorted({each.cluster for each in told.clients})
    strips = tuple(Strip(f"cluster {k}", tuple(_dots(told, k))) for k in reversed(clusters))
    sides = ("worse than one model", "better than one model")
    what = "gain in validation loss over one model"
    chart = Strips("Who gains", what, strips, "beyond chance", sides=sides)
    return Panel(chart, "One dot per client.")


def _dots(told: Summary, cluster: int) -> Iterator[Dot]:
    """The clients of a cluster, beside those that they would hide."""
    members = [(c, c.gain) for c in told.clients if c.cluster == cluster and c.gain is not None]
    for (client, gain), aside in zip(members, swarm([g for _, g in members]), strict=True):
        kind = client.fate or "can't tell"
        yield Dot(gain, aside, 1, kind, f"{client.name}\n{gain:.3g}")


def number(value: float | None) -> str:
    """A measure with four digits, or nothing."""
    return "" if value is None else f"{value:.4g}"
