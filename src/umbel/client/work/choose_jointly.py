"""Choose a model by gradient and loss together: the client's side of Lin et al. 2024."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.batches import Batch, Shard
from umbel.client.net import Net
from umbel.client.work.base import Batching, Cost, Footprint, Promise, Work
from umbel.client.work.local_training import LocalTraining, batch_width
from umbel.client.work.loss_bounds import bounded, promised

Similarity = Literal["cosine", "euclidean"]
Sign = Literal["descent", "literal"]
Reduction = Literal["mean", "sum"]


@dataclass(frozen=True)
class JointScore(Work):
    """Work of a client that scores each of `models` (K, P), whose last changes are `moves` (K, P).

    Sends `scores` (K,): lambda S_k - (1 - lambda) L_k (Lin et al. 2024, eq. 4) on the first
    mini-batch that `local` would draw, where L_k is the loss and S_k the similarity of the client's
    own step with the last change of model k. The similarity with a change of zero is 0. See `Joint`
    for the options.
    """

    relays: ClassVar[bool] = True

    #: local training; only its first mini-batch is used
    local: LocalTraining = field(default_factory=LocalTraining)
    lam: float = 0.5  #: lambda, the weight of the similarity S
    similarity: Similarity = "cosine"  #: S: the cosine, or minus the Euclidean distance
    #: S compares a model's change with -lr g ("descent"), or with g ("literal")
    sign: Sign = "descent"
    reduction: Reduction = "mean"  #: whether L and g are means or sums over a mini-batch

    def __post_init__(self) -> None:
        check(0 <= self.lam <= 1, "lam", self.lam, "in [0, 1]")

    @property
    def batching(self) -> Batching:
        first = replace(self.local, steps=1).batching
        return replace(first, plan=lambda size, seed: self.local.batching.plan(size, seed)[:1])

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"scores": self.scores(net, next(iter(shard.batches())), sent)}

    def scores(self, net: Net, batch: Batch, sent: Mapping[str, Tensor]) -> Tensor:
        """Score each model on a mini-batch: (K,) in double precision, bounded."""
        pairs = zip(sent["models"], sent["moves"], strict=True)
        scores = [self._score(net, batch, model, move) for model, move in pairs]
        return -bounded(-torch.stack(scores))

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {"scores": promised(sent["models"][0])}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        num_models = sent["models"][0]
        return Footprint(0, num_models, num_models)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        return Cost(gradients=sent["models"][0] * batch_width(num_examples, self.local.batch_size))

    def _score(self, net: Net, batch: Batch, model: Tensor, move: Tensor) -> Tensor:
        gradient, loss = net.gradient_and_loss(model, batch)
        size = batch.size().to(loss.dtype) if self.reduction == "sum" else 1.0
        move = move[: net.layout.num_weights]
        # A cosine needs only the direction of the client's own step, which is -gradient.
        toward = 1.0 if self.sign == "literal" else -1.0
        if self.similarity == "cosine":
            lengths = gradient.norm().double() * move.norm().double()
            alike = toward * torch.dot(gradient, move).double() / lengths.clamp(min=1e-30)
        else:
            # Training steps use the mean, and models change by these steps.
            own = gradient * size if self.sign == "literal" else -self.local.lr * gradient
            alike = -(own - move).double().norm()
        alike = torch.where((move != 0).any(), alike, 0.0)
        return self.lam * alike - (1 - self.lam) * (size * loss).double()


@dataclass(frozen=True)
class ChooseJointly(Work):
    """Train the model with the highest score, or model number `given` (); -1: not given.

    The reply is the reply of `score.local` with `chosen` and `scores` (K,).
    """

    relays: ClassVar[bool] = True

    score: JointScore  #: how models are scored, and how the chosen one is trained

    @property
    def inner(self) -> Work:
        return self.score.local

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        scores = self.score.scores(net, next(iter(shard.batches())), sent)
        given = sent["given"]
        chosen = torch.where(given >= 0, given, scores.argmax())
        theta = sent["models"].index_select(0, chosen[None])[0]
        reply = self.score.local(net, shard, {**sent, "theta": theta, "chosen": chosen})
        return {**reply, "chosen": chosen, "scores": scores}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        num_models, *shape = sent["models"]
        trained = self.score.local.promises({**sent, "theta": torch.Size(shape)})
        chosen = Promise((), torch.int64, low=0, high=num_models - 1)
        return {**trained, **self.score.promises(sent), "chosen": chosen}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return self.score.footprint(sent)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        return self.score.cost(num_examples, sent) + self.score.local.cost(num_examples, sent)
