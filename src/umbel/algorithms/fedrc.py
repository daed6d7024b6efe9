"""FedRC: Guo, Tang & Lin, FedRC: tackling diverse distribution shifts challenge in federated
learning by robust clustering, ICML 2024."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from umbel.algorithms.base import Setup
from umbel.algorithms.mixing import Mixing, MixtureState
from umbel.checks import check_memory
from umbel.flow import Flow
from umbel.server.ask import Context

FLOOR = 1e-8
"""The least sum of a label in a component: shares divide."""


@dataclass(frozen=True)
class FedRCState(MixtureState):
    #: (M, K, C) each client's last sums of q_i(k) by label; (M, K, 0) before the first round
    by_label: Tensor


@dataclass(frozen=True)
class FedRC(Mixing[FedRCState]):
    """Predict by mixtures as `FedEM` does, but let clients with other labels share a model.

    Guo et al. 2024. The E-step divides by the share c_k(y) of the label in the component: q_i(k) in
    proportion to pi_k exp(-loss_k(x_i, y_i)) / c_k(y_i), where c_k(y) is the sum of q_i(k) over all
    examples with y_i = y, divided by the sum over all examples. Then a component gains nothing by
    having few labels: skewed labels alone separate no clients, and other inputs, or other labels
    for the same inputs, do. Everything else is FedEM.

    Sums run over the last answers of all clients, as in the authors' code. So clients send how many
    examples of each label they have. Each example must have one label.
    """

    def init(self, setup: Setup) -> FedRCState:
        first = self.started(setup)
        nothing = torch.zeros(setup.num_clients, self.num_clusters, 0).double()
        return FedRCState(first.models, first.labels, first.weights, nothing)

    def round(self, state: FedRCState, ctx: Context) -> Flow[FedRCState]:
        after, trained = yield from self.trained(state, ctx)
        by_label = self._by_label(state, ctx)
        assert trained.label_shares is not None
        sums = trained.label_shares.double() * trained.num_examples[:, None, None]
        by_label = by_label.index_copy(0, trained.clients, sums)
        return FedRCState(
            after.models, after.labels, after.weights, by_label, moments=after.moments
        )

    def label_shares(self, state: FedRCState, ctx: Context) -> Tensor:
        """c (K, C), whose rows sum to 1; at first all are equal, which changes nothing."""
        sums = self._by_label(state, ctx).sum(0).clamp(min=FLOOR)
        shares = (sums / sums.sum(1, keepdim=True)).to(state.models.dtype)
        return shares.clamp(min=torch.finfo(shares.dtype).tiny)

    def _by_label(self, state: FedRCState, ctx: Context) -> Tensor:
        """The sums (M, K, C), which are zero before the first round."""
        if state.by_label.shape[2]:
            return state.by_label
        shape = (*state.by_label.shape[:2], ctx.num_outputs)
        check_memory(8 * prod(shape), f"sums of {ctx.num_outputs:,} labels of {shape[0]:,} clients")
        return state.by_label.new_zeros(shape)
