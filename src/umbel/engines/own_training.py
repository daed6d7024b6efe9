"""Clients that train in their own way: with other epochs, learning rates or mini-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch

from umbel.checks import check
from umbel.client.work import LocalTraining, Work
from umbel.client.work.local_training import retrained, trainings
from umbel.engines.metering import Metered
from umbel.flow import Flow, Layer, Replies, Request
from umbel.settings import Settings


@dataclass(frozen=True)
class OwnTraining(Settings):
    """How some clients train, where it differs from the method's `local`; None: it does not.

    >>> umbel.OwnTraining(["a", "b"], epochs=2).epochs
    2

    Rates decay as those of `local`. A phase of a method that multiplies them or the epochs of
    `local`, such as a longer warm-up, multiplies these, too; one with a number of steps of its own
    keeps it.
    """

    clients: tuple[str, ...]  #: names of the clients
    lr: float | None = None  #: learning rate
    epochs: int | None = None  #: number of passes through a client's examples
    steps: int | None = None  #: number of mini-batches, instead of epochs
    batch_size: int | Literal["all"] | None = None  #: examples in a mini-batch, or "all"

    def __post_init__(self) -> None:
        check(bool(self.clients), "clients", self.clients, "the names of one client or more")
        once = self.epochs is None or self.steps is None
        check(once, "steps", self.steps, "allowed with epochs: give one of the two")
        self.of(LocalTraining(), LocalTraining())  # raises for values out of range

    def of(self, work: Work, usual: LocalTraining) -> Work:
        """Return a work with its training, a form of `usual`, as it is at these clients."""
        return retrained(work, partial(self._trained, usual))

    def _trained(self, usual: LocalTraining, work: LocalTraining) -> LocalTraining:
        if self.lr is not None:
            work = replace(work, lr=self.lr * (work.lr / usual.lr))
        if self.batch_size is not None:
            work = replace(work, batch_size=self.batch_size)
        if (self.epochs, self.steps) == (None, None) or (work.steps and not usual.steps):
            return work
        now, usually = (work.steps, usual.steps) if usual.steps else (work.epochs, usual.epochs)
        times = (now or usually) / usually
        if self.steps is not None:
            return replace(work, steps=round(self.steps * times))
        return replace(work, epochs=round((self.epochs or 0) * times), steps=None)


@dataclass
class Individually(Layer):
    """Asks clients that train in their own way by requests of their own, a request for each way."""

    engine: Metered
    own: Mapping[int, OwnTraining]  # client -> how it trains
    usual: LocalTraining  # how the others do: the method's `local`

    def again(self, request: Request) -> Flow[Replies]:
        """Do as `ask`, without counting bytes a second time."""
        return (yield from self.ask(request, counted=False))

    def ask(self, request: Request, counted: bool = True) -> Flow[Replies]:
        answer = self.engine.ask if counted else self.engine.again
        if self.own.keys().isdisjoint(request.clients.tolist()) or not any(trainings(request.work)):
            return (yield from answer(request))
        places: dict[OwnTraining | None, list[int]] = {}
        for place, client in enumerate(request.clients.tolist()):
            places.setdefault(self.own.get(client), []).append(place)
        parts = []
        for own, mine in places.items():
            work = request.work if own is None else own.of(request.work, self.usual)
            part = replace(request.pick(torch.tensor(mine)), work=work, reduction=None)
            parts.append((yield from answer(part)))
        return Replies(
            torch.cat([part.clients for part in parts]),
            {n: torch.cat([part.columns[n] for part in parts]) for n in parts[0].columns},
            {client: why for part in parts for client, why in part.refused.items()},
            silent={client: why for part in parts for client, why in part.silent.items()},
        )
