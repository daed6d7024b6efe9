"""FedEM: Marfoq et al., Federated multi-task learning under a mixture of distributions,
NeurIPS 2021, Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.algorithms.base import Setup
from umbel.algorithms.mixing import Mixing, MixtureState
from umbel.flow import Flow
from umbel.server.ask import Context


@dataclass(frozen=True)
class FedEM(Mixing[MixtureState]):
    """Predict for each client with its own mixture of K models that are trained together.

    FedEM, Marfoq et al. 2021, models each client's data as a mixture of K components. E-step:
    q_i(k) in proportion to pi_k exp(-loss_k(x_i, y_i)). M-step: pi_k = mean_i q_i(k), and component
    k is trained on losses weighted by q_i(k), then averaged over the clients by n_i. A client
    starts from equal weights, and a lost reply leaves them unchanged. When a client is served, it
    takes one E-step and one M-step of pi only, with fixed components; so do newcomers. A client
    that does not answer keeps its last weights. A newcomer's cluster is the component with its
    largest weight after these steps.
    """

    def init(self, setup: Setup) -> MixtureState:
        return self.started(setup)

    def round(self, state: MixtureState, ctx: Context) -> Flow[MixtureState]:
        after, _ = yield from self.trained(state, ctx)
        return after
