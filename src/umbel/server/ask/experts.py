"""Ask clients that use mixtures of experts: adapters, weighted by routers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from umbel.client.layout import Layout
from umbel.client.routing import Routing
from umbel.client.work import LocalTraining, Routed
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask.context import Context, check_work
from umbel.server.ask.training import summed
from umbel.server.averaging_rules import Moments
from umbel.summary import in_short


@dataclass(frozen=True)
class Experts:
    """Models whose adapters are the experts that all clients mix, with routers for the weights.

    As in FedLEASE, a client mixes the adapters of all models, the ones of its own expert first. It
    uses the router and the head of its own expert.
    """

    models: Tensor  #: (K, P) the model of each expert
    routers: Tensor  #: (K, R) the routers of each expert: one for every adapter
    moments: Moments = ()  #: of the models' `averaging.rule`; routers move by their mean

    __repr__ = in_short

    @classmethod
    def new(cls, models: Tensor, layout: Layout, seed: int) -> Experts:
        """Combine these models with new routers, which are the same for all models."""
        count = len(models)
        return cls(models, Routing(layout, count).new_routers(models, seed).repeat(count, 1))

    def whole(self, layout: Layout) -> Tensor:
        """Return the models (K, P') that each expert's clients use, which contain all experts.

        For `Served`, its `models` are rows of this table, and its `experts` is K.
        """
        routing = Routing(layout, len(self.models))
        own = routing.joined(self.models, self.routers)
        return torch.cat([own, routing.others(self.models)], 1)


def train_experts(
    experts: Experts, labels: Tensor, ctx: Context, local: LocalTraining, averaging: Averaging
) -> Flow[Experts]:
    """Have each client train its expert and its router, with all others fixed, and average them.

    `labels` (M,) are the clients' experts. Trained values are averaged over the clients of the same
    expert. For routers this holds even if `averaging.shared` matches everything, since their slots
    have different meanings in each cluster.
    """
    check_work("local", local, LocalTraining)
    count = len(experts.models)
    routing = Routing(ctx.layout, count)
    # own (K, P + R): model and router of each expert, which its clients train.
    own, index = routing.joined(experts.models, experts.routers), labels[ctx.cohort]
    reduction = averaging.reduction(count, labels)
    request = ctx.request(
        Routed(local.at_round(ctx.round), count),
        reduction=reduction,
        theta=Rows(own, index),
        # The adapters of the other experts, which stay fixed.
        others=Rows(routing.others(experts.models), index),
    )
    replies = yield request
    sums, _ = summed(reduction, replies)
    # Sums of the models' updates (K, P) and of the routers' (K, R).
    moved, turned = (replace(sums, values=values) for values in routing.parted(sums.values))
    step, moments = averaging.move(moved, ctx.layout, experts.moments)
    return Experts(experts.models + step, experts.routers + averaging.rule.mean(turned), moments)
