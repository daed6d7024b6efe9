"""Local training and evaluation in plain PyTorch, written as other libraries write them.

A module, a loader and an optimiser for each client. The steps of FedEM, pFedMe and Per-FedAvg are
those of FL-bench's clients. `batches` are the mini-batches of all epochs, with the numbers of their
examples: (index, x, y).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.peers.tasks import ALPHA, DELTA, PERSONAL_LR, PERSONAL_STEPS, PULL

Batches: TypeAlias = Iterator[Sequence[Tensor]]


def fedavg(model: nn.Module, batches: Batches, lr: float) -> None:
    """Plain steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _, x, y in batches:
        optimizer.zero_grad()
        _backward(cross_entropy(model(x), y))
        optimizer.step()


def fedem(models: nn.ModuleList, batches: Batches, lr: float, shares: Tensor) -> None:
    """Train every component on losses weighted by its shares (n, K) of the examples."""
    optimizer = torch.optim.SGD(models.parameters(), lr=lr)
    for index, x, y in batches:
        losses = torch.stack([cross_entropy(model(x), y, reduction="none") for model in models], 1)
        optimizer.zero_grad()
        _backward((losses * shares[index]).sum() / len(y))
        optimizer.step()


def shares_of(models: nn.ModuleList, batches: Batches, weights: Tensor) -> Tensor:
    """The probability (n, K) that an example, in sequence, is of a component with this weight."""
    with torch.no_grad():
        losses = [
            torch.stack([cross_entropy(model(x), y, reduction="none") for model in models], 1)
            for _, x, y in batches
        ]
    return torch.softmax(weights.log() - torch.cat(losses), 1)


def pfedme(model: nn.Module, batches: Batches, lr: float) -> list[Tensor]:
    """Leave the personal model in the module, and return the weights of the local one."""
    local = [weight.detach().clone() for weight in model.parameters()]
    for _, x, y in batches:
        for _ in range(PERSONAL_STEPS):
            model.zero_grad()
            _backward(cross_entropy(model(x), y))
            with torch.no_grad():
                for personal, weight in zip(model.parameters(), local, strict=True):
                    personal.sub_(PERSONAL_LR * (_slope(personal) + PULL * (personal - weight)))
        with torch.no_grad():
            for personal, weight in zip(model.parameters(), local, strict=True):
                weight.sub_(lr * PULL * (weight - personal))
    return local


def per_fedavg(model: nn.Module, batches: Batches, lr: float, hessian_free: bool) -> None:
    """Steps by the gradient after an inner step, each with mini-batches of its own."""
    inner = torch.optim.SGD(model.parameters(), lr=ALPHA)
    outer = torch.optim.SGD(model.parameters(), lr=lr)
    ahead, behind = (deepcopy(model), deepcopy(model)) if hessian_free else (model, model)
    for _, x, y in batches:
        before = deepcopy(model.state_dict())
        inner.zero_grad()
        _backward(cross_entropy(model(x), y))
        inner.step()
        _, x, y = next(batches)
        outer.zero_grad()
        _backward(cross_entropy(model(x), y))
        if hessian_free:
            _, x, y = next(batches)
            for sign, moved in ((1, ahead), (-1, behind)):
                moved.load_state_dict(before)
                moved.zero_grad()
                with torch.no_grad():
                    for weight, found in zip(moved.parameters(), model.parameters(), strict=True):
                        weight.add_(sign * DELTA * _slope(found))
                _backward(cross_entropy(moved(x), y))
            every = zip(model.parameters(), ahead.parameters(), behind.parameters(), strict=True)
            for found, plus, minus in every:
                found.grad = _slope(found) - ALPHA / (2 * DELTA) * (_slope(plus) - _slope(minus))
        model.load_state_dict(before)
        outer.step()


def _backward(loss: Tensor) -> None:
    torch.autograd.backward(loss)


def _slope(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad
