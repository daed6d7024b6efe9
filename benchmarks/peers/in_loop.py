"""Rounds of the plain loop: what a method's server does, and what it serves clients."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers import loops
from benchmarks.peers.modules import started
from benchmarks.peers.tasks import (
    ALPHA,
    CLUSTERS,
    COMPONENTS,
    EVALUATE_EVERY,
    EVALUATED_AT_ONCE,
    ROUNDS,
    Shard,
    Task,
)
from benchmarks.peers.watch import Watch


class Client:
    """A client's loaders."""

    def __init__(self, task: Task, train: Shard, test: Shard) -> None:
        x, y = map(torch.from_numpy, train)
        self.task, self.x, self.y = task, x, y
        self.train = TensorDataset(torch.arange(len(y)), x, y)
        self.test = TensorDataset(*map(torch.from_numpy, test))

    def batches(self, times: int = 1) -> loops.Batches:
        """The mini-batches of the local training, each epoch's in another sequence."""
        loader: Any = DataLoader(self.train, self.task.batch, shuffle=True)
        return chain.from_iterable(loader for _ in range(times * self.task.epochs))

    def everything(self) -> loops.Batches:
        """All training examples in sequence."""
        return iter(DataLoader(self.train, EVALUATED_AT_ONCE))

    def accuracy(self, outputs: Callable[[Tensor], Tensor]) -> float:
        """The share of test examples that are classified correctly."""
        loader = DataLoader(self.test, EVALUATED_AT_ONCE)
        with torch.no_grad():
            right = sum(int((outputs(x).argmax(1) == y).sum()) for x, y in loader)
        return right / len(self.test)


class FedAvg:
    """One model; a method overrides what clients train and what they are served."""

    count = 1

    def __init__(self, task: Task) -> None:
        self.task, self.lr = task, task.lr
        self.modules = nn.ModuleList(started(task.network, k) for k in range(self.count))
        self.models = [parameters_to_vector(m.parameters()).detach() for m in self.modules]

    def load(self, k: int = 0, training: bool = True) -> nn.Module:
        """Module k with its global weights."""
        vector_to_parameters(self.models[k].clone(), self.modules[k].parameters())
        return self.modules[k].train(training)

    def train(self, client: Client, number: int) -> dict[int, Tensor]:  # noqa: ARG002
        """The weights that a client sends, by the model that they are of."""
        loops.fedavg(self.load(), client.batches(), self.lr)
        return {0: self.trained(0)}

    def trained(self, k: int) -> Tensor:
        """The weights of module k."""
        return parameters_to_vector(self.modules[k].parameters()).detach()

    def served(self, client: Client, number: int) -> Callable[[Tensor], Tensor]:  # noqa: ARG002
        """What computes the outputs for a client."""
        return self.load(training=False)

    def round(self, cohort: list[tuple[int, Client]]) -> None:
        """Train the cohort, and average what it sends."""
        sent: dict[int, list[Tensor]] = {}
        for number, client in cohort:
            for k, weights in self.train(client, number).items():
                sent.setdefault(k, []).append(weights)
        for k, every in sent.items():
            self.models[k] = torch.stack(every).mean(0)


class IFCA(FedAvg):
    """Clients train and use the model with the lowest loss on their training examples."""

    count = CLUSTERS

    def chosen(self, client: Client) -> int:
        """The number of that model."""
        totals = []
        with torch.no_grad():
            for k in range(self.count):
                model = self.load(k, training=False)
                losses = [
                    float(cross_entropy(model(x), y, reduction="sum"))
                    for _, x, y in client.everything()
                ]
                totals.append(sum(losses))
        return int(np.argmin(totals))

    def train(self, client: Client, number: int) -> dict[int, Tensor]:  # noqa: ARG002
        k = self.chosen(client)
        loops.fedavg(self.load(k), client.batches(), self.lr)
        return {k: self.trained(k)}

    def served(self, client: Client, number: int) -> Callable[[Tensor], Tensor]:  # noqa: ARG002
        return self.load(self.chosen(client), training=False)


class FedEM(FedAvg):
    """Every component is trained by all; each client remembers its weights of them."""

    count = COMPONENTS

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        equal = torch.full((self.count,), 1 / self.count)
        self.weights = [equal] * task.clients

    def shares(self, client: Client, number: int) -> Tensor:
        """The E-step with the global components."""
        for k in range(self.count):
            self.load(k, training=False)
        return loops.shares_of(self.modules, client.everything(), self.weights[number])

    def train(self, client: Client, number: int) -> dict[int, Tensor]:
        shares = self.shares(client, number)
        self.weights[number] = shares.mean(0)
        self.modules.train()
        loops.fedem(self.modules, client.batches(), self.lr, shares)
        return {k: self.trained(k) for k in range(self.count)}

    def served(self, client: Client, number: int) -> Callable[[Tensor], Tensor]:
        weights = self.shares(client, number).mean(0)
        return lambda x: sum(
            weight * model(x).softmax(1)
            for weight, model in zip(weights, self.modules, strict=True)
        )


class PFedMe(FedAvg):
    """Each client keeps its personal model, and is served it."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.personal = [self.models[0]] * task.clients

    def train(self, client: Client, number: int) -> dict[int, Tensor]:
        local = loops.pfedme(self.load(), client.batches(), self.lr)
        self.personal[number] = self.trained(0)
        return {0: parameters_to_vector(local)}

    def served(self, client: Client, number: int) -> Callable[[Tensor], Tensor]:  # noqa: ARG002
        module = self.load(training=False)
        vector_to_parameters(self.personal[number].clone(), module.parameters())
        return module


class PerFedAvg(FedAvg):
    """Each client adapts the model by one step on all its training examples."""

    hessian_free = False

    def train(self, client: Client, number: int) -> dict[int, Tensor]:  # noqa: ARG002
        batches = client.batches(3 if self.hessian_free else 2)
        loops.per_fedavg(self.load(), batches, self.lr, self.hessian_free)
        return {0: self.trained(0)}

    def served(self, client: Client, number: int) -> Callable[[Tensor], Tensor]:  # noqa: ARG002
        module = self.load()
        loops.fedavg(module, iter([(client.y, client.x, client.y)]), ALPHA)
        return module.eval()


class HessianFree(PerFedAvg):
    """Per-FedAvg (HF)."""

    hessian_free = True


METHODS: dict[str, type[FedAvg]] = {
    "fedavg": FedAvg,
    "ifca": IFCA,
    "fedem": FedEM,
    "pfedme": PFedMe,
    "per-fedavg": PerFedAvg,
    "per-fedavg-hf": HessianFree,
}


def run(task: Task, file: Path, watch: Watch) -> None:
    """All rounds; the last accuracy is the mean over clients."""
    shards = zip(*task.clients_of(file), strict=True)
    clients = [Client(task, train, test) for train, test in shards]
    method, rng = METHODS[task.method](task), np.random.default_rng(0)
    watch.start()
    for number in range(1, ROUNDS + 1):
        cohort = rng.choice(task.clients, task.cohort, replace=False)
        method.round([(n, clients[n]) for n in cohort])
        if number % EVALUATE_EVERY:
            watch.lap()
            continue
        found = [each.accuracy(method.served(each, n)) for n, each in enumerate(clients)]
        watch.lap(float(np.mean(found)))
