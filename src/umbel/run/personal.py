"""Settings of personal models: the choices of a client that fine-tunes its model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import Any

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm
from umbel.algorithms.restarts import method_of
from umbel.checks import check, check_memory
from umbel.client.net import Net
from umbel.client.optimizers import SGD, Optimizer
from umbel.client.work import LocalTraining, PersonalTraining
from umbel.client.work.local_training import Everything, check_batch_size, check_plan
from umbel.data.federation import Federation
from umbel.engines.privacy import Privacy
from umbel.settings import Settings


@dataclass(frozen=True)
class Personal(Settings):
    """Fine-tuning: after the last round, each client trains the model that it is served.

    >>> umbel.Personal(epochs=(1, 5), lr=0.05, parameters=("head.*",)).choices[:2]
    ((0, 0.0), (1, 1.0))

    A client chooses the number of epochs, and the weight from `interpolate`, with the lowest mean
    loss on its own validation examples. The served model itself is always one of the choices, and
    clients without validation examples keep it. Training continues from each number of epochs to
    the next larger one, with a fresh optimizer. Raises `UsageError` for values out of range.
    """

    #: numbers of epochs to choose from; 0 is always included
    epochs: tuple[int, ...] = (1, 2, 5, 10)
    lr: float = 0.1  #: learning rate of fine-tuning
    batch_size: int | Everything = 32  #: examples in a mini-batch, or "all"
    parameters: tuple[str, ...] = ()  #: patterns of the parameters that are fine-tuned; (): all
    #: weights in [0, 1] to choose from: the model is the mean of the tuned and the served one, with
    #: this weight of the tuned one
    interpolate: tuple[float, ...] = (1.0,)
    #: fraction of each client's training examples to set apart for the choice, if the federation
    #: has no validation examples
    validation_fraction: float | None = None
    optimizer: Optimizer = field(default_factory=SGD)  #: turns gradients into steps

    def __post_init__(self) -> None:
        fine = all(number >= 0 for number in self.epochs) and any(self.epochs)
        check(fine, "epochs", self.epochs, "numbers of epochs, at least one of them 1 or more")
        check(0 < self.lr < inf, "lr", self.lr, "more than 0, and finite")
        check_batch_size(self.batch_size)
        weights = self.interpolate
        fine = all(0 <= weight <= 1 for weight in weights) and any(weights)
        expected = "weights in [0, 1], at least one of them more than 0"
        check(fine, "interpolate", weights, expected)
        fraction = self.validation_fraction
        fine = fraction is None or 0 < fraction < 1
        check(fine, "validation_fraction", fraction, "in (0, 1)")

    @property
    def versions(self) -> tuple[int, ...]:
        """The numbers of epochs, 0 left out, in increasing order."""
        return tuple(sorted({number for number in self.epochs if number}))

    @property
    def choices(self) -> tuple[tuple[int, float], ...]:
        """Every choice of a client: a number of epochs, and the weight of the tuned model."""
        weights = sorted({weight for weight in self.interpolate if weight})
        tuned = ((epochs, weight) for epochs in self.versions for weight in weights)
        return ((0, 0.0), *tuned)

    @property
    def shares(self) -> Tensor:
        """(C, E) share of the way from the served model to each version, for each choice.

        A choice has one version, so that a row has at most one number that is not 0.
        """
        rows = [[weight * (epochs == n) for n in self.versions] for epochs, weight in self.choices]
        return torch.tensor(rows, dtype=torch.float64)

    def works(self, max_value: float | None = None) -> list[PersonalTraining]:
        """Return the training for each version, to be done one after another.

        Each continues from the version before. A version with a weight of a larger magnitude than
        `max_value` is not kept.
        """
        # (1, 2, 5) epochs are trained as 1, 1 and 3 more: each version continues from the last.
        stretches = [after - before for before, after in pairwise((0, *self.versions))]
        local = LocalTraining(lr=self.lr, batch_size=self.batch_size, optimizer=self.optimizer)
        each = (replace(local, epochs=epochs) for epochs in stretches)
        return [PersonalTraining(local, self.parameters, max_value) for local in each]

    def set_apart(self, federation: Federation, seed: int, given: bool = False) -> Federation:
        """Return the federation with `validation_fraction` set apart, if it has no such examples.

        Raises `UsageError` if the engine is `given`, and holds the examples as they are.
        """
        fraction = self.validation_fraction
        if fraction is None or federation.validation is not None:
            return federation
        expected = "possible with an engine of your own, which holds all examples: make both of "
        expected += f"federation.with_validation({fraction:g})"
        check(not given, "personal.validation_fraction", fraction, expected)
        return federation.with_validation(fraction, seed)

    def check_data(self, net: Net, federation: Federation, elsewhere: bool = False) -> None:
        """Raise `UsageError` if there are no validation examples, or no parameters to fine-tune.

        Also if memory can't hold the models, or the mini-batches of the client with most examples.
        Clients `elsewhere` have memory of their own, and the number of their examples is a claim.
        """
        expected = (
            "enough: set validation_fraction in [personal] or in the scenario, or write "
            "Personal(validation_fraction=0.2) or federation.with_validation(0.2)"
        )
        check(federation.validation is not None, "personal: validation examples", "none", expected)
        size = federation.num_clients * net.layout.num_values * net.dtype.itemsize
        # Served and chosen models of all clients are in memory at once.
        check_memory(2 * size, f"personal models of {federation.num_clients:,} clients")
        if not elsewhere:
            epochs = max(work.local.epochs for work in self.works())
            largest = max(1, int(federation.train.sizes.max()))
            check_plan(largest, self.batch_size, epochs, "personal.epochs")
        if self.parameters:
            trained = net.layout.mask(self.parameters, "personal.parameters")
            fine = bool(trained[: net.layout.num_weights].any())
            expected = "patterns of parameters that are trained"
            check(fine, "personal.parameters", self.parameters, expected)

    def check_for(self, algorithm: Algorithm[Any], privacy: Privacy) -> None:
        """Raise `UsageError` if clients' models can't be fine-tuned, or privacy forbids it."""
        method = method_of(algorithm)
        expected = "a method that serves each client one model: its clients use mixtures"
        check(not method.traits.mixes, "personal", type(method).__name__, expected)
        expected = "allowed with privacy.clip: tuned models are not protected"
        check(privacy.clip is None, "personal", "fine-tuning", expected)
