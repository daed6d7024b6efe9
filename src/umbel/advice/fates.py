"""What an answer means to each client: who gains by it, and who is hurt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from umbel.advice.losses import example_losses
from umbel.advice.trial import Standing
from umbel.advice.verdict import Verdict
from umbel.client.batches import Batch
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.flow import Rows

ERRORS = 2.0
"""Standard errors by which a client's losses must differ before it is said to gain or be hurt."""


@dataclass(frozen=True, kw_only=True)
class Fate:
    """How much lower a client's validation loss is with the advised model than with one for all."""

    gain: float  #: NaN where the client has no validation examples
    error: float  #: its standard error over the client's examples; NaN for fewer than two
    over_alone: float  #: the gain over training alone; NaN where that diverged, too

    @property
    def gains(self) -> bool:
        """Whether the client gains beyond chance."""
        return self.gain > ERRORS * self.error

    @property
    def hurt(self) -> bool:
        """Whether the client is worse off beyond chance."""
        return self.gain < -ERRORS * self.error


def fates(net: Net, trial: Federation, verdict: Verdict) -> tuple[Fate, ...]:
    """What the answer means to each client, by its validation examples."""
    chosen, one, own = (
        example_losses(net, trial.test, each)
        for each in (verdict.chosen, verdict.beside, verdict.alone)
    )
    return tuple(
        Fate(
            gain=float((old - new).mean()) if len(new) else float("nan"),
            error=float((old - new).std(ddof=1) / np.sqrt(len(new)))
            if len(new) > 1
            else float("nan"),
            over_alone=float((by_itself - new).mean()) if len(new) else float("nan"),
        )
        for new, old, by_itself in zip(chosen, one, own, strict=True)
    )


def tested(
    net: Net, federation: Federation, verdict: Verdict
) -> dict[str, tuple[float, float | None]]:
    """Mean test loss and accuracy over clients: of one model, training alone, and the answer."""
    shown = {each.contender.name: each for each in (verdict.one, verdict.alone, verdict.chosen)}
    return {
        name: on_test(net, federation, each)
        for name, each in shown.items()
        if each.served is not None and len(federation.test.x)
    }


def on_test(net: Net, federation: Federation, standing: Standing) -> tuple[float, float | None]:
    """Mean over clients of test loss and accuracy; for regressions the accuracy is None."""
    losses, right = [], []
    for client, theta in _models(standing):
        x, y = federation.test.typed(client, net.dtype)
        if len(x):
            outputs = net.outputs(theta, x)
            batch = Batch(x, y)
            losses.append(float(batch.mean(net.objective.losses(outputs, y).double())))
            right.append(float(batch.mean(net.objective.correct(outputs, y).double())))
    accuracy = float(np.mean(right))
    return float(np.mean(losses)), None if np.isnan(accuracy) else accuracy


def _models(standing: Standing) -> list[tuple[int, torch.Tensor]]:
    rows: Rows | None = standing.served
    assert rows is not None
    return [(client, rows.table[place]) for client, place in enumerate(rows.index.tolist())]
