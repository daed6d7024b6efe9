"""The usual way of other libraries: a module, a loader and an optimiser for each client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from umbel.client.work import Work
from umbel.data.federation import Federation

Loss = Callable[[Tensor, Tensor], Tensor]


class PlainClients:
    """Clients one after another, each with its own loader over its own examples."""

    def __init__(
        self, build: Callable[[], nn.Module], federation: Federation, device: str, loss: str
    ) -> None:
        self.module, self.device = build().to(device), device
        self.loss: Loss = cross_entropy if loss == "classes" else mse_loss
        split = federation.train
        self.datasets = [
            TensorDataset(split.x[start : start + size], split.y[start : start + size])
            for start, size in zip(split.offsets.tolist(), split.sizes.tolist(), strict=False)
        ]

    def train(self, work: Work, lr: float, models: Sequence[Tensor]) -> Tensor:
        """Updates (N, P) of all clients; the mini-batches are those that `work` plans."""
        return torch.stack(
            [self.train_one(work, lr, theta, n, seed=n) for n, theta in enumerate(models)]
        )

    def train_one(self, work: Work, lr: float, theta: Tensor, client: int, seed: int) -> Tensor:
        """Update (P,) of one client."""
        module = self._loaded(theta).train()
        optimizer = torch.optim.SGD(module.parameters(), lr=lr)
        for x, y in self._batches(work, self.datasets[client], seed):
            optimizer.zero_grad()
            torch.autograd.backward(self.loss(module(x), y))
            optimizer.step()
        return parameters_to_vector(module.parameters()).detach() - theta

    def gradients(self, work: Work, theta: Tensor) -> Tensor:
        """Gradients (N, P) of all clients at one model."""
        found = []
        for client, dataset in enumerate(self.datasets):
            module = self._loaded(theta).train()
            for x, y in self._batches(work, dataset, client):
                torch.autograd.backward(self.loss(module(x), y))
            found.append(
                torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
            )
        return torch.stack(found)

    def losses(self, models: Sequence[Tensor], batch_size: int) -> Tensor:
        """Mean loss (N, K) of every model on every client."""
        rows = []
        for dataset in self.datasets:
            row = []
            for theta in models:
                module, total = self._loaded(theta).eval(), torch.zeros((), device=self.device)
                with torch.no_grad():
                    for x, y in DataLoader(dataset, batch_size=batch_size):
                        x, y = x.to(self.device), y.to(self.device)
                        total += self.loss(module(x), y) * len(x)
                row.append(total / len(dataset))
            rows.append(torch.stack(row))
        return torch.stack(rows)

    def _loaded(self, theta: Tensor) -> nn.Module:
        vector_to_parameters(theta.clone(), self.module.parameters())
        self.module.zero_grad()
        return self.module

    def _batches(
        self, work: Work, dataset: TensorDataset, seed: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        plan = work.batching.plan(len(dataset), seed)
        if not len(plan):
            loader = DataLoader(dataset, batch_size=len(dataset))
        else:
            chosen = [step[step >= 0].tolist() for step in plan]
            loader = DataLoader(dataset, batch_sampler=chosen)
        for x, y in loader:
            yield x.to(self.device), y.to(self.device)
