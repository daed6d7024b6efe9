"""Local training: a client trains a model, and sends the update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf
from sys import float_info
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from umbel.checks import check, check_memory
from umbel.client.batches import Plan, Shard
from umbel.client.descent import Descent
from umbel.client.net import Net
from umbel.client.optimizers import SGD, Optimizer
from umbel.client.schedules import Constant, Schedule
from umbel.client.work.base import COUNT, Batching, Cost, Footprint, Plans, Promise, Work, innermost
from umbel.client.work.schemes import Plain, Scheme
from umbel.seeds import generators

Everything = Literal["all"]

BYTES_OF_A_PLACE, BYTES_OF_A_STEP = 64, 1_000
"""Bytes of a plan of mini-batches: for each example, with copies in engines, and for each step."""


@dataclass(frozen=True)
class LocalTraining(Work):
    """Train the received model on mini-batches, and send the update (P,): trained minus received.

    >>> umbel.LocalTraining(lr=0.05, steps=20, optimizer=umbel.SGD(momentum=0.9)).lr
    0.05

    Every epoch draws new batches without replacement; the last batch may be smaller.
    """

    lr: float = 0.1  #: learning rate
    epochs: int = 5  #: number of passes through the client's examples
    batch_size: int | Everything = 32  #: examples in a mini-batch, or "all"
    steps: int | None = None  #: number of mini-batches, instead of `epochs`
    #: leave out an epoch's last batch if it is smaller, unless it is the only one
    drop_last: bool = False
    lr_decay: float = 1.0  #: the learning rate is multiplied by this once a round
    proximal: float = 0.0  #: mu of FedProx: adds mu/2 |theta - received|^2 to the loss
    optimizer: Optimizer = field(default_factory=SGD)  #: turns gradients into steps
    schedule: Schedule = field(default_factory=Constant)  #: the factor of `lr` in each round
    #: corrections of the steps, and personal models beside the shared one
    scheme: Scheme = field(default_factory=Plain)

    def __post_init__(self) -> None:
        check(0 < self.lr < inf, "lr", self.lr, "more than 0, and finite")
        check(self.epochs >= 1, "epochs", self.epochs, "1 or more")
        check_batch_size(self.batch_size)
        check(self.steps is None or self.steps >= 1, "steps", self.steps, "1 or more")
        check(0 < self.lr_decay <= 1, "lr_decay", self.lr_decay, "in (0, 1]")
        check(self.proximal >= 0, "proximal", self.proximal, "0 or more")
        self.scheme.check(self.descent)

    def at_round(self, number: int) -> LocalTraining:
        """The same with the learning rate of this round, counted from 0."""
        return self.slowed(self.factor(number))

    def factor(self, number: int) -> float:
        """The factor of `lr` in this round, counted from 0."""
        return self.lr_decay**number * self.schedule.factor(number)

    def slowed(self, factor: float) -> LocalTraining:
        """The same with the learning rate times this factor, the same in all rounds.

        If the product is too small for a float, it is the smallest positive float.
        """
        lr = max(self.lr * factor, float_info.min)
        return replace(self, lr=lr, lr_decay=1.0, schedule=Constant())

    def allows(self, setting: str, value: object) -> bool:
        """Learning rates may be lower, as they are in later rounds."""
        if setting == "lr":
            return isinstance(value, float) and value <= self.lr
        if setting == "lr_decay":
            return value in (1.0, self.lr_decay)
        if setting == "schedule":
            return value in (Constant(), self.schedule)
        return super().allows(setting, value)

    @property
    def batching(self) -> Batching:
        return Batching(Plans(self._plans), draws=self.batch_size != "all", shape=self.shape)

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        known = not self.scheme.column or self.scheme.kept({n: t.shape for n, t in sent.items()})
        how = "possible: nobody sends what clients remember, as umbel.Run does"
        check(bool(known), "local.scheme", type(self.scheme).__name__, how)
        trained = self.scheme.train(self, net, shard, sent)
        return {**trained, "num_examples": shard.num_examples}

    @property
    def descent(self) -> Descent:
        """The gradient steps of this training."""
        return Descent(self.lr, self.proximal, self.optimizer)

    def _plans(self, num_examples: int, seeds: Sequence[int]) -> Plan:
        steps, width = self.shape(num_examples)
        per_epoch = self._per_epoch(num_examples)
        epochs = -(-steps // per_epoch)
        setting = "local.epochs" if self.steps is None else "local.steps"
        check_plan(num_examples, self.batch_size, epochs, setting)
        plans = shuffled(num_examples, self.batch_size, epochs, seeds)
        plans = plans.reshape(len(seeds), epochs, -1, width)[:, :, :per_epoch]
        return plans.reshape(len(seeds), -1, width)[:, :steps]

    def shape(self, num_examples: int) -> tuple[int, int]:
        """The number and the size of mini-batches."""
        per_epoch = self._per_epoch(num_examples)
        steps = self.epochs * per_epoch if self.steps is None else self.steps
        return steps + self.scheme.epochs_before * per_epoch, batch_width(
            num_examples, self.batch_size
        )

    def _per_epoch(self, num_examples: int) -> int:
        width = batch_width(num_examples, self.batch_size)
        return num_examples // width if self.drop_last else -(-num_examples // width)

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        kept = self.scheme.kept(sent)
        column = {} if kept is None else {self.scheme.column: Promise(tuple(kept))}
        return {"update": Promise(tuple(sent["theta"])), **column, "num_examples": COUNT}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:  # noqa: ARG002
        return Footprint(0, 1, self.scheme.models)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:  # noqa: ARG002
        steps, width = self.shape(num_examples)
        per_epoch = self._per_epoch(num_examples)
        in_epoch = per_epoch * width if self.drop_last else num_examples
        epochs, more = divmod(steps, per_epoch)
        seen = epochs * in_epoch + min(more * width, in_epoch)
        return Cost(gradients=seen * self.scheme.times)


def training_in(work: Work) -> LocalTraining | None:
    """The training that a work does with all that its client is sent; None if it does none."""
    within = innermost(work)
    return within if isinstance(within, LocalTraining) else None


def trainings(settings: Any) -> Iterator[LocalTraining]:
    """All the local training in the fields of a method or a work, and within these."""
    if isinstance(settings, LocalTraining):
        yield settings
        return
    for member in fields(settings):
        value = getattr(settings, member.name)
        if isinstance(value, Work):
            yield from trainings(value)


def plainly(work: Work) -> Work:
    """The same work, in which clients train without a scheme."""
    return retrained(work, lambda local: replace(local, scheme=Plain()))


def retrained(work: Work, change: Callable[[LocalTraining], LocalTraining]) -> Work:
    """The same work, with all local training in it changed."""
    if isinstance(work, LocalTraining):
        return change(work)
    values = {f.name: getattr(work, f.name) for f in fields(work)}
    within = {n: retrained(value, change) for n, value in values.items() if isinstance(value, Work)}
    return replace(work, **within) if within else work


def check_no_pull(local: LocalTraining) -> None:
    """Raise `UsageError` if `local.proximal` is set, for a method that has no such term."""
    check(local.proximal == 0, "local.proximal", local.proximal, "0: this method has no such term")


def check_plain_steps(local: LocalTraining, send: str) -> None:
    """Raise `UsageError` if settings other than `lr` are set, although clients send gradients."""
    if send != "gradient":
        return
    why = 'with send "gradient" the server takes plain steps'
    check(local.proximal == 0, "local.proximal", local.proximal, f"0: {why}")
    plain = LocalTraining().optimizer
    check(local.optimizer == plain, "local.optimizer", local.optimizer, f"{plain}: {why}")


def check_batch_size(batch_size: int | Everything) -> None:
    """Raise `UsageError` unless it is a positive number or "all"."""
    fine = batch_size == "all" or (isinstance(batch_size, int) and batch_size >= 1)
    check(fine, "batch_size", batch_size, '1 or more, or "all"')


def batch_width(num_examples: int, batch_size: int | Everything) -> int:
    """The number of examples in a full batch of this client."""
    return num_examples if batch_size == "all" else min(batch_size, num_examples)


def check_plan(num_examples: int, batch_size: int | Everything, epochs: int, setting: str) -> None:
    """Raise `UsageError`, naming the setting, if a client's mini-batches don't fit in memory."""
    width = batch_width(num_examples, batch_size)
    steps = epochs * -(-num_examples // width)
    said = f"{setting}: {epochs:,} epochs at a client, {steps:,} mini-batches of {width:,} examples"
    check_memory(steps * (width * BYTES_OF_A_PLACE + BYTES_OF_A_STEP), said)


def shuffled(
    num_examples: int, batch_size: int | Everything, epochs: int, seeds: Sequence[int]
) -> Plan:
    """Every example once per epoch, of each of C clients: (C, epochs * batches, batch width).

    The order is random, unless all are in one batch by `batch_size = "all"`.
    """
    width = batch_width(num_examples, batch_size)
    steps = -(-num_examples // width)
    plans = np.full((len(seeds), epochs, steps * width), -1, dtype=np.int64)
    if batch_size == "all":
        plans[..., :num_examples] = np.arange(num_examples)
    else:
        for plan, rng in zip(plans, generators(seeds), strict=True):
            for epoch in plan:
                epoch[:num_examples] = rng.permutation(num_examples)
    return plans.reshape(len(seeds), epochs * steps, width)


def first_batch(batch_size: int | Everything) -> Batching:
    """One mini-batch, drawn by the seed."""
    return Batching(
        Plans(lambda size, seeds: shuffled(size, batch_size, 1, seeds)[:, :1]),
        shape=lambda size: (1, batch_width(size, batch_size)),
    )
