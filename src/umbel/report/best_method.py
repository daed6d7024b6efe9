"""The best method, named only if its lead is more than chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, isfinite

from umbel.report.figures.charts import Dot, Middle, Strip, Strips
from umbel.report.figures.panels import Panel
from umbel.result.statistics.contenders import gains
from umbel.result.statistics.measures import Measure
from umbel.result.statistics.paired import FEWEST_PAIRS, Interval
from umbel.result.statistics.pairs import MethodStanding, Pair
from umbel.summary import counted, joined_by_and

MOST_NAMED = 4
"""Largest number of methods that a sentence names; the figure shows all."""


def verdict(order: MethodStanding, measure: Measure) -> str:
    """Whether a method is best beyond chance, in words and with its interval."""
    name, quality = order.leader.name, order.leader.quality
    if not isfinite(quality):
        return f"No method is named as the best: the {measure.name} of none is known."
    leader = f"{name} has the {measure.best} mean {measure.name}, {quality:.4g}"
    doubtful = order.doubtful
    near = (doubtful or order.others)[0]
    lead = near.lead
    if not doubtful:
        assert lead is not None
        text = (
            f"{leader}, and is ahead of every other method by more than chance explains: of "
            f"{near.other.name}, the next, by {said(lead)}, paired over {_pairs(lead)}."
        )
    elif lead is None:
        text = (
            f"No method is named as the best: {leader}, but it has no finished run on the same "
            f"data under the same seed as {near.other.name}."
        )
    else:
        text = f"No method is best for sure: {leader}, but {_doubt(near, lead)}"
        same = [pair.other.name for pair in doubtful[1:] if _alike(pair.lead, lead)]
        text += f" The same holds of {_listed(same)}." if same else ""
        less = [pair.other.name for pair in doubtful[1:] if not _alike(pair.lead, lead)]
        text += f" Nor is it ahead of {_listed(less)} for sure." if less else ""
        beaten = [pair.other.name for pair in order.others if pair.ahead]
        text += f" It is ahead of {_listed(beaten)} by more than chance." if beaten else ""
    text += _corrected(order)
    if any(pair.lead is not None and pair.lead.seeds == 1 for pair in order.others):
        text += " With one seed, only clients vary here: the effect of another seed is not known."
    return text


def _corrected(order: MethodStanding) -> str:
    """The methods that the leader is ahead of, if all pairs are tested together."""
    count = max(pair.of for pair in order.pairs)
    ahead = [pair for pair in order.others if pair.ahead]
    if count < 2 or not ahead:
        return ""
    sure = [pair.other.name for pair in ahead if pair.sure]
    others = "every other method" if len(sure) == len(order.others) else _listed(sure or ["none"])
    all_ = f"all {count:,} pairs" if order.all_judged else "the pairs"
    return f" Corrected for {all_} of methods (Holm), it is ahead of {others}."


def _alike(one: Interval | None, other: Interval) -> bool:
    """Whether the same sentence fits both leads: no lead, or possibly chance."""
    if one is None or one.known != other.known:
        return False
    kinds = [(each.low == each.high == 0, each.mean == 0, each.high < 0) for each in (one, other)]
    return kinds[0] == kinds[1]


def _doubt(near: Pair, lead: Interval) -> str:
    name = near.other.name
    if lead.known and lead.low == lead.high == 0:
        return f"every client fares alike with {name}."
    if lead.known and lead.mean == 0:
        return f"{name} has the same: the difference is {said(lead)}, paired over {_pairs(lead)}."
    if not lead.known:
        return (
            f"its lead over {name}, {signed(lead.mean)}, rests on {_pairs(lead)}: fewer than "
            f"{FEWEST_PAIRS} tell nothing of chance."
        )
    if lead.high < 0:
        return f"{name} is ahead by {said(lead.reversed)} on the {_pairs(lead)} that both have."
    return f"its lead over {name} could be chance: {said(lead)}, paired over {_pairs(lead)}."


def said(lead: Interval) -> str:
    """A mean gain and its interval."""
    if not lead.known:
        return signed(lead.mean)
    return f"{signed(lead.mean)} (95% interval {signed(lead.low)} to {signed(lead.high)})"


def signed(value: float) -> str:
    """Three digits and a sign; zero has no sign."""
    return f"{value:+.3g}" if value else "0"


def chance(p_value: float) -> str:
    """A p-value as text."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def lead_cells(pair: Pair) -> list[str]:
    """The lead, its interval, and its p-value alone and corrected; a dash for what is not known."""
    if pair.lead is None or not pair.known:
        return ["-" if pair.lead is None else signed(pair.lead.mean), "-", "-", "-"]
    ends = f"{signed(pair.lead.low)} to {signed(pair.lead.high)}"
    return [signed(pair.lead.mean), ends, chance(pair.lead.p_value), chance(pair.p_value)]


def leads(order: MethodStanding, measure: Measure) -> Iterator[Panel]:
    """The lead over each other method, with its interval."""
    strips = []
    for pair in order.others:
        other, lead = pair.other, pair.lead
        if lead is None:
            continue
        known = gains(order.leader, other, measure)
        dots = []
        for seed in dict.fromkeys(gain.seed for gain in known):
            values = [gain.value for gain in known if gain.seed == seed]
            mean = sum(values) / len(values)
            dots.append(Dot(mean, 0.22, 1, "", f"over {other.name}, seed {seed}\n{mean:+.4g}"))
        middle = None
        if lead.low > -inf:
            text = f"over {other.name}\n{said(lead)}\n" + ("more than" if lead.sure else "may be")
            middle = Middle(lead.mean, lead.low, lead.high, sure=lead.sure, text=f"{text} chance")
        strips.append(Strip(f"over {other.name}", tuple(dots), middle))
    if not strips:
        return
    name = order.leader.name
    what = measure.gain("test")
    figure = Strips(f"Lead of {name}", what, tuple(strips), sides=("behind", "ahead"))
    note = (
        f"Diamonds: how far {name} is ahead of the other in the mean, on the same clients under "
        "the same seeds, with the 95% interval; hollow where that includes zero: it could be "
        "chance. One dot per seed."
    )
    yield Panel(figure, note, wide=True)


def _pairs(lead: Interval) -> str:
    seeds = "one seed" if lead.seeds == 1 else f"{lead.seeds} seeds"
    return f"{counted(lead.pairs, 'result')} of the same clients under {seeds}"


def _listed(names: Sequence[str]) -> str:
    """The first names of many."""
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return joined_by_and(names)
