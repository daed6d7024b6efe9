"""How much better clients fare with one model than with another, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan

import numpy as np

from umbel.advice.examples import Floats

SURE = 0.01
"""p-value up to which a mean gain is taken for more than chance: several are looked at."""

FEWEST = 6
"""Fewer clients have no interval: that all of them agree in sign is chance in one of 16."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """How much lower a mean loss is, with its 95% interval over clients; NaN where unknown."""

    mean: float
    low: float
    high: float
    p_value: float  #: of no gain, against a gain, by a paired t-test
    rank_p_value: float = 1.0  #: the same by Wilcoxon's signed ranks, which outliers do not move

    @property
    def sure(self) -> bool:
        """Whether it is a gain beyond chance, by either test."""
        return self.mean > 0 and min(self.p_value, self.rank_p_value) <= SURE


def gain(new: Floats, old: Floats) -> Gain:
    """What clients gain by `new` losses (M,) in place of `old` ones; NaN where unknown."""
    from scipy.stats import ttest_1samp, wilcoxon

    known = ~(np.isnan(new) | np.isnan(old))
    values = (old - new)[known]
    mean = float(values.mean()) if len(values) else nan
    if len(values) < FEWEST:
        return Gain(mean=mean, low=-inf, high=inf, p_value=1.0)
    if np.ptp(values) == 0:  # as where fine-tuning began and ended with the same model
        return Gain(mean=mean, low=mean, high=mean, p_value=float(mean <= 0))
    test = ttest_1samp(values, 0.0, alternative="greater")
    low, high = ttest_1samp(values, 0.0).confidence_interval(0.95)
    ranks = wilcoxon(values, alternative="greater")
    return Gain(
        mean=mean,
        low=float(low),
        high=float(high),
        p_value=float(test.pvalue),
        rank_p_value=float(ranks.pvalue),
    )


def ahead(new: Floats, old: Floats) -> bool:
    """Whether `new` losses are surely the lower ones."""
    return gain(new, old).sure
