"""Two rules of the code that Kim et al. released, which differ from the paper, on eight angles of
MNIST: `python -m benchmarks.released`.

CFL-GP there asks all clients about one model in round 0 alone. In later clustering rounds each
client answers about the model of its own cluster, as if all had been asked about the first. IFCA's
clients choose the model with the highest accuracy on a mini-batch, the first on a tie, and step on
another one. For each rule and seed it prints the first round with the highest ARI, counted from 0,
and the ARI and test accuracy at the end. It needs `mnist` in the data directory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import click
import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from umbel.client.batches import Batch
from umbel.data.scenarios.kim import ROTATED_MNIST_8
from umbel.data.sources import Sources
from umbel.papers.base import shipped
from umbel.result.run import Run
from umbel.server.clustering import spectral
from umbel.server.numbering import match_labels

K, PERIOD, LR = 4, 2, 0.1

Rule = Callable[["Clients"], Iterator[Tensor]]
"""Yields the clusters (M,) of all clients after each round, and moves the models of `Clients`."""


class Clients:
    """The clients of a run, asked one after another, and the K models that they train."""

    def __init__(self, run: Run, batch: int, seed: int) -> None:
        self.net, self.federation = run.net, run.federation
        self.models = torch.stack([run.net.new(seed * K + k) for k in range(K)])
        self.batch, self.rng = batch, np.random.default_rng(seed)

    def __len__(self) -> int:
        return self.federation.num_clients

    def drawn(self, client: int) -> Batch:
        """A mini-batch of a client's training examples."""
        x, y = self.federation.train.of(client)
        rows = torch.from_numpy(self.rng.choice(len(x), min(self.batch, len(x)), replace=False))
        return Batch(x[rows], y[rows])

    def gradients(self, labels: Tensor) -> Tensor:
        """(M, P): of each client on the model with its label."""
        each = enumerate(labels.tolist())
        return torch.stack(
            [self.net.gradient(self.models[k], self.drawn(client))[0] for client, k in each]
        )

    def step(self, gradients: Tensor, labels: Tensor) -> None:
        """Each model takes the mean step of the clients with its label."""
        for k in range(K):
            if (labels == k).any():
                self.models[k] -= LR * gradients[labels == k].mean(0)

    def accuracy(self, labels: Tensor) -> float:
        """Mean over clients of the test accuracy of the model with their label."""
        tests = [self.federation.test.of(client) for client in range(len(self))]
        right = [
            (self.net.outputs(self.models[k], x).argmax(1) == y).double().mean()
            for (x, y), k in zip(tests, labels.tolist(), strict=True)
        ]
        return float(torch.stack(right).mean())


def cfl_gp(clients: Clients, rounds: int, until: int) -> Iterator[Tensor]:
    """CFL-GP, which clusters in every second round before round `until`."""
    labels, feature = torch.zeros(len(clients), dtype=torch.long), torch.zeros(1)
    for number in range(rounds):
        sent = clients.gradients(labels)
        if number % PERIOD == 0 and number < until:
            beta = 1 / ((number + 1) // (K * PERIOD) + 1)
            feature = (1 - beta) * feature + beta * sent
            labels = match_labels(spectral(feature, K, number), labels, K)
        clients.step(sent, labels)
        yield labels


def ifca(clients: Clients, rounds: int) -> Iterator[Tensor]:
    """IFCA, whose clients choose by accuracy."""
    for _ in range(rounds):
        chosen = []
        for client in range(len(clients)):
            batch = clients.drawn(client)
            right = [
                (clients.net.outputs(m, batch.x).argmax(1) == batch.y).sum() for m in clients.models
            ]
            chosen.append(int(torch.stack(right).argmax()))
        labels = torch.tensor(chosen)
        clients.step(clients.gradients(labels), labels)
        yield labels


def rules(rounds: int) -> Mapping[str, Rule]:
    return {
        "CFL-GP": partial(cfl_gp, rounds=rounds, until=rounds),
        "CFL-GP, clustering for 10 rounds": partial(cfl_gp, rounds=rounds, until=10),
        "IFCA": partial(ifca, rounds=rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    usual: Any = shipped("cfl-gp-mnist8")
    scenario = replace(ROTATED_MNIST_8, clients=options.clients)
    for seed in range(options.seeds):
        run = replace(usual, scenario=scenario, seed=seed).open(Sources.default())
        groups = np.asarray(run.federation.groups)
        for batch in options.batch:
            for name, rule in rules(options.rounds).items():
                clients = Clients(run, batch, seed)
                courses = list(rule(clients))
                aris = [adjusted_rand_score(groups, labels) for labels in courses]
                peak = int(np.argmax(np.round(aris, 9)))
                right = clients.accuracy(courses[-1])
                click.echo(
                    f"b = {batch}, seed {seed}, {name}: highest ARI {max(aris):.2f} "
                    f"in round {peak}, at the end {aris[-1]:.2f}, accuracy {100 * right:.1f}%"
                )


if __name__ == "__main__":
    main()
