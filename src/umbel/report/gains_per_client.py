"""Gains of each client with each method over local training and over FedAvg."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from umbel.report.best_method import said, signed
from umbel.report.figures.charts import Dot, Middle, Strip, Strips, swarm
from umbel.report.figures.panels import Panel
from umbel.result.statistics.baselines import BASELINES
from umbel.result.statistics.contenders import ComparedMethod, gains
from umbel.result.statistics.measures import Measure
from umbel.result.statistics.paired import Gain, interval
from umbel.summary import is_small

MOST_DOTS = 1500
"""Largest number of dots in a figure."""

KINDS = ("gains", "loses", "same")
"""Possible outcomes for a client, in the order of colours."""


@dataclass(frozen=True)
class Fates:
    """Gains and losses of clients with other methods instead of a baseline."""

    number: int  # number of the baseline
    baseline: ComparedMethod
    measure: Measure
    rows: tuple[tuple[ComparedMethod, tuple[Gain, ...]], ...]  # the best method first

    @property
    def panel(self) -> Panel:
        """One row per method, one dot per client."""
        most = max(50, MOST_DOTS // len(self.rows))
        strips = []
        for method, gained in self.rows:
            shown = _thinned(sorted(gained, key=lambda gain: gain.value), most)
            aside = swarm([gain.value for gain in shown])
            dots = [
                Dot(gain.value, shift, 1, _kind(gain), self._told(method, gain))
                for gain, shift in zip(shown, aside, strict=True)
            ]
            mean = interval(gained)
            text = f"{method.name}, mean\n{said(mean)}"
            middle = Middle(mean.mean, mean.low, mean.high, sure=mean.sure, text=text)
            strips.append(Strip(method.name, tuple(dots), middle if mean.known else None))
        what = self.measure.gain("test")
        title = f"Each client against {self.baseline.name}"
        figure = Strips(title, f"{what} than {self.baseline.name}", tuple(strips), sides=SIDES)
        note = (
            f"One dot per client and seed: how much better the client fares than with "
            f"{self.baseline.name}. Diamonds: means with 95% intervals, hollow: may be chance."
        )
        least = max(len(gained) for _, gained in self.rows)
        note += f" Of {least} dots a row {most} are drawn." if least > most else ""
        return Panel(figure, note, wide=True)

    @property
    def methods(self) -> tuple[Sequence[str], list[list[str]]]:
        """A table of the numbers of clients that gain and lose with each method."""
        return HEADS, [self._row(method, gained) for method, gained in self.rows]

    @property
    def clients(self) -> tuple[Sequence[str], list[list[str]]]:
        """A table of every client's gain with each method, who loses most first."""
        clients = list(dict.fromkeys(gain.client for _, gained in self.rows for gain in gained))
        means = [_means(gained) for _, gained in self.rows]
        each = [
            [client, *(self._gain(mean[client]) if client in mean else "" for mean in means)]
            for client in clients
        ]
        worst = sorted(each, key=lambda row: min(float(cell) for cell in row[1:] if cell))
        return ["client", *(method.name for method, _ in self.rows)], worst

    def _row(self, method: ComparedMethod, gained: Sequence[Gain]) -> list[str]:
        mean, counts = interval(gained), [_kind(gain) for gain in gained]
        worst = min(gained, key=lambda gain: gain.value)
        least = [self._gain(worst.value), f"{worst.client}, seed {worst.seed}"]
        return [
            method.name,
            self._gain(mean.mean),
            f"{self._gain(mean.low)} to {self._gain(mean.high)}" if mean.known else "-",
            *(str(counts.count(kind)) for kind in KINDS),
            f"{counts.count('loses') / len(counts):.0%}",
            *(least if worst.value < 0 else ["-", "-"]),
        ]

    def _gain(self, value: float) -> str:
        """Losses may be of any scale."""
        small = self.measure.lower and is_small(value)
        return signed(value) if small else f"{value:+.4f}"

    def _told(self, method: ComparedMethod, gain: Gain) -> str:
        what = self.measure.name
        return (
            f"client {gain.client}, seed {gain.seed}\n{what} {gain.now:.4g} with {method.name}\n"
            f"{gain.before:.4g} with {self.baseline.name}: {gain.value:+.4g}"
        )


SIDES = ("loses", "gains")

HEADS = (
    *("method", "mean gain", "95% interval", "gain", "lose", "same", "share that lose"),
    *("largest loss", "whose"),
)


def fates(methods: Sequence[ComparedMethod], measure: Measure) -> list[Fates]:
    """One for each baseline among the methods, which are sorted, the best last."""
    several: list[Fates] = []
    for baseline in sorted(
        (m for m in methods if m.baseline), key=lambda m: BASELINES.index(m.baseline)
    ):
        rows = [(m, tuple(gains(m, baseline, measure))) for m in reversed(methods)]
        known = tuple((m, each) for m, each in rows if each and m is not baseline)
        if known:
            several.append(Fates(len(several), baseline, measure, known))
    return several


def _kind(gain: Gain) -> str:
    return "gains" if gain.value > 0 else "loses" if gain.value < 0 else "same"


def _means(gained: Sequence[Gain]) -> dict[str, float]:
    """Each client's mean over seeds."""
    values: dict[str, list[float]] = {}
    for gain in gained:
        values.setdefault(gain.client, []).append(gain.value)
    return {client: sum(each) / len(each) for client, each in values.items()}


def _thinned(ordered: Sequence[Gain], most: int) -> Sequence[Gain]:
    """A given number of items, including the first and the last."""
    if len(ordered) <= most:
        return ordered
    return [ordered[round(n * (len(ordered) - 1) / (most - 1))] for n in range(most)]
