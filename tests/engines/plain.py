"""Federated averaging as anyone would write it in PyTorch: modules, an optimiser, and a loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.seeds import Stream, client_seeds

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs and y of a mini-batch -> the mean loss ()."""


@dataclass(frozen=True)
class Expected:
    """What federated averaging comes to."""

    states: Sequence[dict[str, Tensor]]  # of the common model, after each round
    loss: float  # mean over clients of each one's test loss
    accuracy: float | None


def federated_averaging(
    module: nn.Module,
    federation: Federation,
    local: LocalTraining,
    loss: Loss,
    accuracy: Loss | None,
    rounds: int,
    seed: int,
) -> Expected:
    """All clients train in every round, in the mini-batches that umbel plans for them."""
    states = []
    for number in range(rounds):
        clients = range(federation.num_clients)
        seeds = client_seeds(seed, Stream.CLIENT, number, np.arange(len(clients)))
        trained = [
            _trained(module, *federation.train.of(client), local, loss, seeds[client])
            for client in clients
        ]
        weights = federation.train.sizes / federation.train.sizes.sum()
        module.load_state_dict(_average(trained, weights))
        states.append(copy.deepcopy(module.state_dict()))
    module.eval()
    with torch.no_grad():
        tests = [federation.test.of(client) for client in range(federation.num_clients)]
        outputs = [(module(_as(x, module)), _as(y, module)) for x, y in tests]
        losses = [float(loss(*pair)) for pair in outputs]
        scores = None if accuracy is None else [float(accuracy(*pair)) for pair in outputs]
    return Expected(
        states, float(np.mean(losses)), None if scores is None else float(np.mean(scores))
    )


def _trained(
    module: nn.Module, x: Tensor, y: Tensor, local: LocalTraining, loss: Loss, seed: int
) -> dict[str, Tensor]:
    module = copy.deepcopy(module)
    module.train()
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=local.lr)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for positions in local.batching.plan(len(x), seed):
            rows = torch.from_numpy(positions[positions >= 0])
            optimizer.zero_grad()
            found = loss(module(_as(x[rows], module)), _as(y[rows], module))
            torch.autograd.backward(found)
            optimizer.step()
    return module.state_dict()


def _as(values: Tensor, module: nn.Module) -> Tensor:
    """Numbers in the floating-point type of the module; labels as they are."""
    return values.to(next(module.parameters()).dtype) if values.is_floating_point() else values


def _average(states: Sequence[dict[str, Tensor]], weights: Sequence[float]) -> dict[str, Tensor]:
    return {
        name: sum(w * state[name] for w, state in zip(weights, states, strict=True))  # type: ignore[misc]
        if first.is_floating_point() and first.isfinite().all()
        else first
        for name, first in states[0].items()
    }
