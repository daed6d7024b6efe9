"""Gains of clients with one model over another, and the certainty of these gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan

import numpy as np

from umbel.advice.examples import Floats
from umbel.advice.losses import FEWEST_CLIENTS
from umbel.advice.trial import Standing

SURE = 0.01
"""Largest p-value of a mean gain that counts as sure; below 0.05, as several gains are tested."""

ROUNDING = float(np.finfo(np.float32).eps)
"""A smaller gain, as a share of the losses, is a rounding error, and so is a smaller difference
of gains."""


@dataclass(frozen=True, kw_only=True)
class LossGain:
    """The decrease of a mean loss, with its 95% interval; NaN where unknown."""

    mean: float
    low: float
    high: float
    p_value: float  #: one-sided p-value of "no gain" by a t-test of the differences
    #: the same by Wilcoxon's signed-rank test, which is robust to outliers
    rank_p_value: float = 1.0

    @property
    def sure(self) -> bool:
        """True if the gain is more than chance by at least one of the tests."""
        return self.mean > 0 and min(self.p_value, self.rank_p_value) <= SURE

    @property
    def by_ranks(self) -> bool:
        """True if the gain is sure by the rank test alone; the t interval may include zero."""
        return self.sure and self.p_value > SURE


def lead(new: Standing, old: Standing) -> LossGain:
    """The mean gain by a `new` way: over clients, or over examples if clients are few."""
    if new.examples and old.examples:
        return gain_over_examples(new.examples, old.examples)
    return gain(new.loss, old.loss)


def gain(new: Floats, old: Floats) -> LossGain:
    """Compute the gain of `new` losses (M,) over `old` ones; NaN where unknown."""
    from scipy.stats import ttest_1samp, wilcoxon

    known = ~(np.isnan(new) | np.isnan(old))
    values, equal = _gains(new[known], old[known], _usual([new[known], old[known]]))
    mean = float(values.mean()) if len(values) else nan
    if len(values) < FEWEST_CLIENTS:
        return LossGain(mean=mean, low=-inf, high=inf, p_value=1.0)
    if equal:  # as where fine-tuning began and ended with the same model
        return _equal(mean, len(values))
    test = ttest_1samp(values, 0.0, alternative="greater")
    low, high = ttest_1samp(values, 0.0).confidence_interval(0.95)
    ranks = wilcoxon(values, alternative="greater")
    return LossGain(
        mean=mean,
        low=float(low),
        high=float(high),
        p_value=float(test.pvalue),
        rank_p_value=float(ranks.pvalue),
    )


def gain_over_examples(new: Sequence[Floats], old: Sequence[Floats]) -> LossGain:
    """The mean gain of exactly these clients, estimated from the losses of their single examples.

    The mean is over clients, as in `gain`; its error is that of their means, by Welch (1947).
    Clients with one example, whose error nobody knows, are left out, as those with none are. Where
    each client's gains are equal, and those of clients differ, nobody knows the error of any.
    """
    from scipy.stats import t

    usual = _usual([*new, *old])
    judging = [
        (after, before)
        for after, before in zip(new, old, strict=True)
        if len(after) > 1 and np.isfinite(before - after).all()
    ]
    pairs = [_gains(after, before, usual) for after, before in judging]
    values = [gains for gains, _ in pairs]
    mean = float(np.mean([each.mean() for each in values])) if values else nan
    if all(equal for _, equal in pairs):
        together = [np.concatenate(each) for each in zip(*judging, strict=True)]
        if together and _gains(together[0], together[1], usual)[1]:
            return _equal(mean, len(together[0]))
        return LossGain(mean=mean, low=-inf, high=inf, p_value=1.0)
    squares = np.array([each.var(ddof=1) / len(each) for each in values])
    freedom = squares.sum() ** 2 / sum(
        square**2 / (len(each) - 1) for square, each in zip(squares, values, strict=True)
    )
    known = t(freedom, loc=mean, scale=np.sqrt(squares.sum()) / len(values))
    low, high = known.interval(0.95)
    return LossGain(mean=mean, low=float(low), high=float(high), p_value=float(known.cdf(0.0)))


def _usual(losses: Sequence[Floats]) -> float:
    """The median of finite losses, which a few that diverged don't change; 0 if there is none."""
    together = np.abs(np.concatenate([*losses, np.zeros(0)]))
    finite = together[np.isfinite(together)]
    return float(np.median(finite)) if len(finite) else 0.0


def _gains(new: Floats, old: Floats, usual: float) -> tuple[Floats, bool]:
    """Gains, zero where they are rounding errors, and whether they are equal but for these.

    Losses are computed in single precision: an error is a share of the loss, or of a `usual` one.
    """
    size = np.maximum(np.abs(new), np.abs(old))
    rounding = ROUNDING * np.maximum(np.where(np.isfinite(size), size, 0.0), usual)
    gains = old - new
    gains = np.where(np.abs(gains) <= rounding, 0.0, gains)
    equal = bool((np.abs(gains - np.median(gains)) <= rounding).all()) if len(gains) else True
    return gains, equal


def _equal(mean: float, count: int) -> LossGain:
    """The gain where this many are equal: a sign test, as nothing is known of how they vary."""
    return LossGain(mean=mean, low=mean, high=mean, p_value=0.5**count if mean > 0 else 1.0)


def one_beside(standing: Standing, one: Standing) -> Standing:
    """The rival of a way: `one` model for all, trained for as many epochs if the way fine-tunes."""
    return standing.rivals[0] if standing.rivals else one


def ahead(new: Standing, old: Standing) -> bool:
    """Return True if the losses of a `new` way are surely lower."""
    return lead(new, old).sure
