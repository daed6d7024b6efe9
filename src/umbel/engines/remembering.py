"""Keeps clients' losses, and does not request them again while the models are the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

import torch
from torch import Tensor

from umbel.client.work import ChooseByLoss, MeanLoss
from umbel.flow import Engine, Flow, Layer, Replies, Request, Rows, ask
from umbel.summary import in_short


@dataclass
class Remembering(Layer):
    """An engine that keeps the last losses of all clients, for the next request that needs them.

    If clients are served the model with the lowest training loss, an evaluation computes the losses
    of all models, and the next round begins with the same computation. `ChooseByLoss` is done in
    two steps: first the losses of all clients, known or not, then the work. Known losses save time
    but change no result, so that a resumed run, which has none, gives the same bits.
    """

    engine: Engine
    num_clients: int
    models: Tensor | None = None  # (K, P) those that were judged last
    losses: Tensor | None = None  # (M, K)
    seconds: float = 0.0  # that this took
    spared: float = 0.0  # seconds that would have been spent on judging again

    __repr__ = in_short

    def ask(self, request: Request) -> Flow[Replies]:
        work = request.work
        if isinstance(work, ChooseByLoss) and work.judge == "all":
            return (yield from self._chosen(request, work))
        if work == MeanLoss() and "models" in request.shared and self._asks_all(request):
            losses = yield from self._judged(request.shared["models"])
            return Replies(request.clients, {"losses": losses[request.clients]})
        return (yield from ask(self.engine, request))

    def take(self) -> float:
        """The seconds saved since the last call; to be called at the end of a round.

        Losses from the round itself are dropped: its initial models are not requested again.
        """
        taken, self.spared = self.spared, 0.0
        self.models = self.losses = None
        return taken

    def _chosen(self, request: Request, work: ChooseByLoss) -> Flow[Replies]:
        models = request.shared["models"]
        every = yield from self._judged(models, again=True)
        losses = every[request.clients]
        chosen = losses.argmin(1)
        theta = {**request.each, "theta": Rows(models, chosen)}
        if request.each:  # what is sent beside the models may be for the one that is chosen
            theta["chosen"] = Rows(chosen, torch.arange(len(chosen)))
        replies = yield from ask(self.engine, replace(request, work=work.then, each=theta))
        return replace(replies, columns={**replies.columns, "chosen": chosen, "losses": losses})

    def _judged(self, models: Tensor, again: bool = False) -> Flow[Tensor]:
        """The mean training loss (M, K) of each of the models (K, P) on each client."""
        if self.models is not None and self.losses is not None and torch.equal(models, self.models):
            if again:  # only the first block of a round saves any time
                self.spared, self.seconds = self.spared + self.seconds, 0.0
            return self.losses
        began = perf_counter()
        everyone = torch.arange(self.num_clients)
        # Seeds of 0: the losses that are kept must not depend on the round that requested them.
        request = Request(MeanLoss(), everyone, [0] * len(everyone), {"models": models})
        replies = yield from ask(self.engine, request)
        self.models, self.losses = models.clone(), replies.columns["losses"]
        self.seconds = 0.0 if again else perf_counter() - began
        return self.losses

    def _asks_all(self, request: Request) -> bool:
        return torch.equal(request.clients, torch.arange(self.num_clients))
