"""The kernel of chains of linear layers: `Dense` for examples of its form, else `General`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from umbel.client.batches import Batch, Shard, Step, Steps
from umbel.client.descent import Rule
from umbel.client.kernels.dense import Dense
from umbel.client.kernels.general import General
from umbel.client.kernels.stacked import Stacked
from umbel.client.optimizers import SGD


@dataclass(frozen=True)
class Chain:
    """Computes many models at once under `vmap`, without separating them."""

    dense: Dense
    general: General

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        if not self.dense.takes(x):
            return self.general.outputs(theta, x)
        general = lambda one, examples: (self.general.outputs(one, examples),)  # noqa: E731
        (result,) = Stacked(self.dense.outputs, general, by_example=True)(theta, x)
        return result

    def gradient(
        self, theta: Tensor, batch: Batch, factors: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if not self.dense.takes(batch.x, batch.y):
            return self.general.gradient(theta, batch, factors)
        shares = batch.shares(theta.dtype)
        if factors is not None:  # may be wider, as the shares of a mixture are
            shares = (shares * factors).to(theta.dtype)
        gradient, loss = Stacked(self.dense.gradient, self._sums)(theta, batch.x, batch.y, shares)
        return gradient, loss, theta[len(gradient) :]

    def _sums(self, theta: Tensor, x: Tensor, y: Tensor, factors: Tensor) -> tuple[Tensor, ...]:
        """Return the gradient of the sum of losses times factors (B,), and the sum."""
        gradient, mean, _ = self.general.gradient(theta, Batch(x, y), factors)
        return gradient * len(x), mean * len(x)

    def descend(
        self, theta: Tensor, shard: Shard, rule: Rule, factors: Tensor | None = None
    ) -> Tensor:
        if not (type(rule.outer.optimizer) is SGD and self.dense.takes(shard.x, shard.y)):
            return rule.by_gradients(self.gradient, theta, shard, factors)
        own = () if factors is None else (factors.to(theta.dtype),)

        def fast(models: Tensor, rows: Tensor, *given: Tensor) -> tuple[Tensor]:
            weights, held = (given[0], given[1:]) if own else (None, given)
            return self.dense.descend(rule, shard.x, shard.y, models, rows, weights, *held)

        def general(one: Tensor, rows: Tensor, *given: Tensor) -> tuple[Tensor]:
            planned = Steps(rows, [Step(row, padded=True, may_be_empty=True) for row in rows])
            weights, held = (given[0], given[1:]) if own else (None, given)
            moving = replace(shard, planned=planned)
            return (self.general.descend(one, moving, rule.holding(*held), weights),)

        (update,) = Stacked(fast, general)(theta, shard.planned.rows, *own, *rule.held)
        return update
