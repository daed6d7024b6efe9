"""Ask clients that use mixtures of experts: adapters, and routers that weigh them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from umbel.client.layout import Layout
from umbel.client.routing import Routing
from umbel.client.work import LocalTraining, Routed
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask.context import Context
from umbel.server.ask.training import summed
from umbel.summary import in_short


@dataclass(frozen=True)
class Experts:
    """Models whose adapters are the experts that all clients mix, and the routers that weigh them.

    As FedLEASE has them: client n mixes the adapters of all models, beginning with those of its own
    expert, whose router and head it uses.
    """

    models: Tensor  #: (K, P) a model for each expert
    routers: Tensor  #: (K, R) the routers of each: one beside every adapter

    __repr__ = in_short

    @classmethod
    def new(cls, models: Tensor, layout: Layout, seed: int) -> Experts:
        """Give these models new routers, which are alike for all of them."""
        count = len(models)
        return cls(models, Routing(layout, count).new_routers(models, seed).repeat(count, 1))

    def whole(self, layout: Layout) -> Tensor:
        """Return for each expert the model that its clients use, all experts in it: (K, P').

        They are what `Served.models` are rows of, with K for `Served.experts`.
        """
        routing = Routing(layout, len(self.models))
        own = routing.joined(self.models, self.routers)
        return torch.cat([own, routing.others(self.models)], 1)


def train_experts(
    experts: Experts, labels: Tensor, ctx: Context, local: LocalTraining, averaging: Averaging
) -> Flow[Experts]:
    """Have each client train its expert and its router beside all others, and average the results.

    `labels` (M,) say whose expert is which. What a client trains is averaged over the clients of
    the same expert; routers are so even where `averaging.shared` is for all, as their slots are
    others in each cluster.
    """
    count = len(experts.models)
    routing = Routing(ctx.layout, count)
    own, index = routing.joined(experts.models, experts.routers), labels[ctx.cohort]
    reduction = averaging.reduction(count, labels)
    request = ctx.request(
        Routed(local.at_round(ctx.round), count),
        reduction=reduction,
        theta=Rows(own, index),
        others=Rows(routing.others(experts.models), index),
    )
    replies = yield request
    sums, _ = summed(reduction, replies)
    moved, turned = (replace(sums, values=values) for values in routing.parted(sums.values))
    step = averaging.step_of(moved, ctx.layout)
    return Experts(experts.models + step, experts.routers + turned.means())
