"""Schemes of local training: corrected steps, and models that a client keeps beside the shared one.

Letters: N clients, P values of a model, Q values that a client remembers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from umbel.checks import check
from umbel.client.batches import Batch, Shard, Step, Steps
from umbel.client.descent import Beside, Descent
from umbel.client.layout import HEAD, Layout, spans_of
from umbel.client.net import Net
from umbel.client.optimizers import SGD
from umbel.client.work.base import MEMORY
from umbel.settings import Settings

CONTROL = "control"
"""The column of a reply with the mean gradient of the client's steps."""


class Training(Protocol):
    """What a scheme knows of the `LocalTraining` that it belongs to."""

    @property
    def epochs(self) -> int:
        """The number of passes, unless there are `steps`."""
        ...

    @property
    def steps(self) -> int | None:
        """The number of mini-batches."""
        ...

    @property
    def descent(self) -> Descent:
        """The gradient steps."""
        ...


@dataclass(frozen=True)
class Scheme(Settings, ABC):
    """How `LocalTraining` trains a model, and what its clients remember between rounds.

    The values that a client remembers come back in the column `column` of its reply. They are
    `MEMORY`, which stays with the client, or values that the server keeps for it. A run sends them
    again in the next round, by a method around the one with this training.
    """

    column: ClassVar[str] = MEMORY  #: where the values are; "": clients remember nothing
    #: whether clients are averaged with equal weights, as the scheme's own means are
    equal: ClassVar[bool] = False
    #: the models that clients use: their cluster's, what each remembers, or those by `served`
    uses: ClassVar[Literal["cluster", "kept", "served"]] = "cluster"
    moves_means: ClassVar[bool] = False  #: whether the server changes updates, by `averaged`
    times: ClassVar[int] = 1  #: number of gradients on each mini-batch
    models: ClassVar[int] = 1  #: models that are in memory side by side

    @property
    def epochs_before(self) -> int:
        """The number of further epochs, before those of `LocalTraining`."""
        return 0

    def check(self, descent: Descent) -> None:
        """Raise `UsageError` if the scheme does not go with the other settings of the training."""

    @abstractmethod
    def train(
        self, local: Training, net: Net, shard: Shard, sent: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Train `sent["theta"]` (P,): `update` (P,), and what the client remembers (Q,)."""

    def start(self, theta: Tensor, layout: Layout) -> Tensor:  # noqa: ARG002
        """What a client remembers (Q,) before its first round; theta (P,) is the first model."""
        return theta

    def kept(self, sent: Mapping[str, torch.Size]) -> torch.Size | None:
        """The shape of what the client remembers, of the shapes that it is sent; None: nothing."""
        return sent.get(self.column)

    def served(self, models: Tensor, kept: Tensor, means: Tensor | None) -> Tensor:
        """The models (N, P) that clients use, of their clusters' models (N, P).

        `kept` (N, Q) is what each remembers, and `means` (N, Q) the mean of that in its cluster, if
        the scheme `moves_means`.
        """
        raise NotImplementedError

    def averaged(self, updates: Tensor, means: Tensor) -> Tensor:  # noqa: ARG002
        """The updates (N, P) of which the server takes means, of those that clients sent."""
        return updates


@dataclass(frozen=True)
class Plain(Scheme):
    """Gradient steps, and nothing to remember."""

    column: ClassVar[str] = ""

    def train(
        self, local: Training, net: Net, shard: Shard, sent: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        return {"update": net.descend(sent["theta"], shard, local.descent)}


@dataclass(frozen=True)
class PersonalModel(Scheme):
    """A personal model v beside the shared one, and near it: Ditto.

    Li et al., Ditto: Fair and robust federated learning through personalization, ICML 2021,
    Algorithm 1. On the mini-batches that train the received model w, v takes steps down the
    gradient of f(v) + pull/2 |v - w|^2, with w as received. v starts as the first model, and each
    client uses its own v.
    """

    uses: ClassVar[Literal["cluster", "kept", "served"]] = "kept"
    times: ClassVar[int] = 2
    models: ClassVar[int] = 2

    pull: float = 1.0  #: lambda, the weight of the penalty; 0: v is trained by its client alone

    def __post_init__(self) -> None:
        check(self.pull >= 0, "pull", self.pull, "0 or more")

    def train(
        self, local: Training, net: Net, shard: Shard, sent: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        rule = Beside(local.descent, replace(local.descent, proximal=self.pull), sent[MEMORY])
        update, away = net.descend(sent["theta"], shard, rule).unbind(-2)
        return {"update": update, MEMORY: sent["theta"] + away}


@dataclass(frozen=True)
class ControlVariates(Scheme):
    """Steps corrected by the difference of the clients' gradients: SCAFFOLD.

    Karimireddy et al., SCAFFOLD: Stochastic controlled averaging for federated learning, ICML 2020.
    Steps go down g(y) + c - c_i (eq. 3). c_i becomes the mean gradient of the client's steps
    (option II of eq. 4), and c is the mean of c_i over all clients, in clustered methods over those
    of a cluster. c_i is 0 for a client that was never asked.
    """

    column: ClassVar[str] = CONTROL
    equal: ClassVar[bool] = True

    def check(self, descent: Descent) -> None:
        expected = "SGD without momentum and weight decay: the control is a mean of its gradients"
        check(descent.optimizer == SGD(), "optimizer", descent.optimizer, expected)
        check(descent.proximal == 0, "proximal", descent.proximal, "0, so that steps are gradients")

    def start(self, theta: Tensor, layout: Layout) -> Tensor:
        return torch.zeros_like(theta[: layout.num_weights])

    def kept(self, sent: Mapping[str, torch.Size]) -> torch.Size | None:
        return sent.get("slope", sent.get(CONTROL))

    def train(
        self, local: Training, net: Net, shard: Shard, sent: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        slope = sent["slope"] if "slope" in sent else _of_chosen(sent) - sent[CONTROL]
        update = net.descend(sent["theta"], shard, replace(local.descent, constant=slope))
        steps = (shard.planned.rows >= 0).any(1).sum().to(update.dtype)
        mean = update[: net.layout.num_weights] / (-local.descent.lr * steps)
        return {"update": update, CONTROL: mean - slope}


@dataclass(frozen=True)
class MixedModel(Scheme):
    """A personal model v, used in a mixture with the shared one: APFL.

    Deng, Kamani & Mahdavi, Adaptive personalized federated learning, arXiv 2003.13461, Algorithm 1.
    Clients use share v + (1 - share) w. On each mini-batch w takes a step, and v one down the
    gradient of the mixture's loss by v, both from the values before. If it is `adaptive`, the share
    takes a step a round, down the derivative of the first mini-batch's loss by it. The weights are
    mixed, and not the outputs as in the authors' code.
    """

    uses: ClassVar[Literal["cluster", "kept", "served"]] = "served"
    times: ClassVar[int] = 2
    models: ClassVar[int] = 2

    share: float = 0.5  #: alpha, the first share of v, in [0, 1]
    adaptive: bool = True  #: whether each client adapts its share

    def __post_init__(self) -> None:
        check(0 <= self.share <= 1, "share", self.share, "in [0, 1]")

    def start(self, theta: Tensor, layout: Layout) -> Tensor:  # noqa: ARG002
        return torch.cat([theta, theta.new_full((1,), self.share)])

    def train(
        self, local: Training, net: Net, shard: Shard, sent: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        own, share = sent[MEMORY][:-1], sent[MEMORY][-1]
        rule = Beside(local.descent, local.descent, own, share)
        update, change = net.descend(sent["theta"], shard, rule).unbind(-2)
        memory = sent[MEMORY] + change
        step = local.descent.lr * change[-1] if self.adaptive else 0.0
        memory[-1] = (share - step).clamp(0, 1)
        return {"update": update[:-1], MEMORY: memory}

    def served(self, models: Tensor, kept: Tensor, means: Tensor | None) -> Tensor:  # noqa: ARG002
        return torch.lerp(models, kept[:, :-1], kept[:, -1:])


@dataclass(frozen=True)
class HeadFirst(Scheme):
    """Train the head alone, and then all the rest: the order of FedRep.

    Collins et al., Exploiting shared representations for personalized federated learning, ICML
    2021, Algorithm 1. `LocalTraining` has the epochs or steps of the rest. Without any of the head,
    it stays as it began, as in FedBABU (Oh, Kim & Yun, ICLR 2022).
    """

    column: ClassVar[str] = ""

    head: tuple[str, ...] = (HEAD,)  #: patterns of the head's values; "@head" is the last layer
    head_epochs: int = 10  #: number of passes that train the head; 0: it never moves

    def __post_init__(self) -> None:
        check(self.head_epochs >= 0, "head_epochs", self.head_epochs, "0 or more")

    @property
    def epochs_before(self) -> int:
        return self.head_epochs

    def train(
        self, local: Training, net: Net, shard: Shard, sent: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        theta, head = sent["theta"], net.layout.mask(self.head, "local.scheme.head")
        moved = replace(local.descent, spans=spans_of(~head))
        if not self.head_epochs:
            return {"update": net.descend(theta, shard, moved)}
        first, rest = self.divided(shard, local)
        update = net.descend(theta, first, replace(local.descent, spans=spans_of(head)))
        return {"update": update + net.descend(theta + update, rest, moved)}

    def divided(self, shard: Shard, local: Training) -> tuple[Shard, Shard]:
        """The mini-batches of the head, and those of the rest."""
        rows, steps = shard.planned.rows, shard.planned.steps
        if not any(step.may_be_empty for step in steps):
            first = self._of_head(len(steps), local)
            parts = [Steps(rows[:first], steps[:first]), Steps(rows[first:], steps[first:])]
        else:  # clients of several sizes side by side: each has its own number of mini-batches
            first = self._of_head((rows >= 0).any(1).sum(), local)
            ahead = (torch.arange(len(rows), device=rows.device) < first)[:, None]
            without = torch.where(rows >= 0, ~rows, rows)
            padded = [torch.where(ahead, rows, without), torch.where(ahead, without, rows)]
            parts = [Steps(each, [Step(row, True, True) for row in each]) for each in padded]
        of_head, of_rest = (replace(shard, planned=part) for part in parts)
        return of_head, of_rest

    def _of_head(self, steps: Any, local: Training) -> Any:
        """How many of a client's mini-batches train the head."""
        if local.steps is not None:
            return steps - local.steps
        return steps * self.head_epochs // (self.head_epochs + local.epochs)


@dataclass(frozen=True)
class DynamicPenalty(Scheme):
    """A linear and a quadratic term that make clients agree on one minimum: FedDyn.

    Acar et al., Federated learning based on dynamic regularization, ICLR 2021, Algorithm 1. Clients
    minimise f_i(theta) - <g_i, theta> + alpha/2 |theta - w|^2, and g_i falls by alpha times the
    update. The server adds -h / alpha to the mean of the trained models, where h is the mean of g_i
    over all clients, or over those of a cluster. Clients use the mean of the models, without h.
    """

    equal: ClassVar[bool] = True
    uses: ClassVar[Literal["cluster", "kept", "served"]] = "served"
    moves_means: ClassVar[bool] = True

    alpha: float = 0.01  #: weight of the quadratic term

    def __post_init__(self) -> None:
        check(self.alpha > 0, "alpha", self.alpha, "more than 0")

    def check(self, descent: Descent) -> None:
        expected = "0: the quadratic term has the weight `local.scheme.alpha`"
        check(descent.proximal == 0, "proximal", descent.proximal, expected)

    def start(self, theta: Tensor, layout: Layout) -> Tensor:
        return torch.zeros_like(theta[: layout.num_weights])

    def train(
        self, local: Training, net: Net, shard: Shard, sent: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        rule = replace(local.descent, proximal=self.alpha, constant=-sent[MEMORY])
        update = net.descend(sent["theta"], shard, rule)
        fallen = sent[MEMORY] - self.alpha * update[: net.layout.num_weights]
        return {"update": update, MEMORY: fallen}

    def served(self, models: Tensor, kept: Tensor, means: Tensor | None) -> Tensor:  # noqa: ARG002
        assert means is not None
        return self.averaged(models, -means)

    def averaged(self, updates: Tensor, means: Tensor) -> Tensor:
        cut = means.shape[1]
        return torch.cat([updates[:, :cut] - means / self.alpha, updates[:, cut:]], 1)


@dataclass(frozen=True)
class Contrast(Scheme):
    """Features held near those of the received model, and away from the client's last: MOON.

    Li, He & Song, Model-contrastive federated learning, CVPR 2021, Algorithm 1. To each example's
    loss is added weight times -log(a / (a + b)), where a = exp(cos(z, z_received) / temperature)
    and b is the same for the features of the model that the client trained last. The paper's
    projection head is a part of the network, if there is one: `layer` names it.
    """

    times: ClassVar[int] = 3
    models: ClassVar[int] = 3

    weight: float = 1.0  #: mu
    temperature: float = 0.5  #: tau
    layer: str = ""  #: the layer that gives the features; "": what the last trained layer is given

    def __post_init__(self) -> None:
        check(self.weight >= 0, "weight", self.weight, "0 or more")
        check(self.temperature > 0, "temperature", self.temperature, "more than 0")

    def train(
        self, local: Training, net: Net, shard: Shard, sent: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        theta, last = sent["theta"], sent[MEMORY]
        if not self.weight:
            update = net.descend(theta, shard, local.descent)
            return {"update": update, MEMORY: theta + update}

        def terms(batch: Batch) -> Callable[[Tensor], Tensor]:
            near, away = (net.features(one, batch.x, self.layer) for one in (theta, last))
            return lambda z: self.term(z, near, away)

        update = net.descend_with(theta, shard, local.descent, terms, self.layer)
        return {"update": update, MEMORY: theta + update}

    def term(self, features: Tensor, near: Tensor, away: Tensor) -> Tensor:
        """The term (B,) of features (B, F), those to be near to and those to be away from."""
        alike = [cosine_similarity(features, each, dim=1) for each in (near, away)]
        return self.weight * softplus((alike[1] - alike[0]) / self.temperature)


def _of_chosen(sent: Mapping[str, Tensor]) -> Tensor:
    """The mean control (num_weights,) of the cluster that the client chose."""
    means = sent["means"]
    return means.index_select(0, sent["chosen"][None])[0]


SCHEMES: dict[str, type[Scheme]] = {
    "plain": Plain,
    "ditto": PersonalModel,
    "scaffold": ControlVariates,
    "apfl": MixedModel,
    "fedrep": HeadFirst,
    "feddyn": DynamicPenalty,
    "moon": Contrast,
}
