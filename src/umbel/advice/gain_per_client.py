"""The effect of an answer on each client: which clients gain, and which are worse off."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan

import numpy as np
import torch

from umbel.advice.examples import Floats
from umbel.advice.gains import ROUNDING, SURE
from umbel.advice.losses import example_losses
from umbel.advice.trial import Standing
from umbel.advice.verdict import Verdict
from umbel.client.batches import Batch
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.flow import Rows

FEWEST_EXAMPLES = 7
"""Fewer examples are never sure: 6 equal gains have the same sign by chance in 1 of 64 cases."""


@dataclass(frozen=True, kw_only=True)
class Fate:
    """The gain of a client: its validation loss with one model for all, minus the advised one's."""

    gain: float  #: NaN where the client has no validation examples
    error: float  #: its standard error over the client's examples; NaN for fewer than two
    examples: int  #: for validation
    over_alone: float  #: the gain over training alone; NaN where that diverged, too

    @property
    def gains(self) -> bool:
        """True if the client surely gains, by a one-sided test at the level `SURE`."""
        return self.gain > self._by_chance

    @property
    def hurt(self) -> bool:
        """True if the client is surely worse off, by the same test."""
        return self.gain < -self._by_chance

    @property
    def _by_chance(self) -> float:
        """Return the largest gain that equally good models may show, by Student's t.

        A few losses may be equal, or take few values: the t-test then takes chance for certainty.
        """
        from scipy.stats import t

        if self.examples < FEWEST_EXAMPLES:
            return inf
        return float(self.error * t.ppf(1 - SURE, df=self.examples - 1))


def fates(net: Net, trial: Federation, verdict: Verdict) -> tuple[Fate, ...]:
    """Return the effect of the answer on each client, by its validation examples."""
    chosen, one, own = (
        example_losses(net, trial.test, each)
        for each in (verdict.chosen, verdict.beside, verdict.alone)
    )
    return tuple(fate_of(*losses) for losses in zip(chosen, one, own, strict=True))


def fate_of(new: Floats, old: Floats, alone: Floats) -> Fate:
    """The fate by a client's losses (n,) with each model; rounding errors count as chance."""
    if not len(new):
        return Fate(gain=nan, error=nan, over_alone=nan, examples=0)
    spread = (old - new).std(ddof=1) / np.sqrt(len(new)) if len(new) > 1 else nan
    rounding = ROUNDING * max(np.abs(old).mean(), np.abs(new).mean())
    return Fate(
        gain=float((old - new).mean()),
        error=float(np.maximum(spread, rounding)),
        over_alone=float((alone - new).mean()),
        examples=len(new),
    )


def tested(
    net: Net, federation: Federation, verdict: Verdict
) -> dict[str, tuple[float, float | None]]:
    """Mean test loss and accuracy over clients: of one model, training alone, and the answer."""
    shown = {each.contender.name: each for each in (verdict.one, verdict.alone, verdict.chosen)}
    served = {name: each for name, each in shown.items() if each.served is not None}
    found = {name: on_test(net, federation, each) for name, each in served.items()}
    return {name: result for name, result in found.items() if result is not None}


def on_test(
    net: Net, federation: Federation, standing: Standing
) -> tuple[float, float | None] | None:
    """Mean over clients of test loss and accuracy; None without test examples that have labels.

    For regressions the accuracy is None.
    """
    losses, right = [], []
    for client, theta in _models(standing):
        x, y = federation.test.typed(client, net.dtype)
        batch = Batch(x, y)
        if batch.size():
            outputs = net.outputs(theta, x)
            losses.append(float(batch.mean(net.objective.losses(outputs, y).double())))
            right.append(float(batch.mean(net.objective.correct(outputs, y).double())))
    if not losses:
        return None
    accuracy = float(np.mean(right))
    return float(np.mean(losses)), None if np.isnan(accuracy) else accuracy


def _models(standing: Standing) -> list[tuple[int, torch.Tensor]]:
    rows: Rows | None = standing.served
    assert rows is not None
    return [(client, rows.table[place]) for client, place in enumerate(rows.index.tolist())]
