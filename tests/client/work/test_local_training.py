from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from tests.federations import blobs, each_its_own, mlp
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.client.optimizers import SGD, Adam
from umbel.client.work import LocalTraining
from umbel.engines import Sequential
from umbel.flow import Request

Parameters = Iterator[nn.Parameter]

OPTIMIZERS: list[tuple[LocalTraining, Callable[[Parameters], torch.optim.Optimizer]]] = [
    (LocalTraining(lr=0.3), lambda p: torch.optim.SGD(p, 0.3)),
    (
        LocalTraining(lr=0.1, optimizer=SGD(momentum=0.9, weight_decay=0.01)),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    ),
    (
        LocalTraining(lr=0.05, optimizer=Adam(weight_decay=0.02)),
        lambda p: torch.optim.Adam(p, 0.05, weight_decay=0.02),
    ),
    (
        LocalTraining(lr=0.05, optimizer=Adam(beta1=0.5, beta2=0.7, epsilon=1e-3)),
        lambda p: torch.optim.Adam(p, 0.05, (0.5, 0.7), 1e-3),
    ),
]


def update(net: Net, work: LocalTraining, client: int = 1, seed: int = 7) -> torch.Tensor:
    theta = net.new(seed=0)[None]
    request = Request(work, torch.tensor([client]), [seed], each={"theta": each_its_own(theta)})
    return Sequential(net, blobs()).send(request).columns["update"][0]


@pytest.mark.parametrize(("work", "make"), OPTIMIZERS)
def test_training_is_what_torch_optim_does(
    work: LocalTraining, make: Callable[[Parameters], torch.optim.Optimizer]
) -> None:
    net = mlp(dtype=torch.float64)
    module = net.module(net.new(seed=0)).train()
    optimizer = make(module.parameters())
    x, y = blobs().train.of(1)
    for batch in work.batching.plan(len(x), 7):
        rows = batch[batch >= 0]
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(module(x[rows].double()), y[rows]))
        optimizer.step()
    expected = net.flatten(module) - net.new(seed=0)
    torch.testing.assert_close(update(net, work), expected)


def test_the_proximal_term_pulls_back_to_the_received_model() -> None:
    net = mlp(dtype=torch.float64)
    module, start = net.module(net.new(seed=0)).train(), net.new(seed=0)
    received = [p.detach().clone() for p in module.parameters()]
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    work = LocalTraining(lr=0.1, epochs=3, proximal=2.0)
    x, y = blobs().train.of(1)
    for batch in work.batching.plan(len(x), 7):
        rows = batch[batch >= 0]
        optimizer.zero_grad()
        away = sum(((p - r) ** 2).sum() for p, r in zip(module.parameters(), received, strict=True))
        torch.autograd.backward(cross_entropy(module(x[rows].double()), y[rows]) + 2.0 / 2 * away)
        optimizer.step()
    torch.testing.assert_close(update(net, work), net.flatten(module) - start)


def test_one_full_batch_step_is_minus_the_learning_rate_times_the_gradient() -> None:
    net = mlp(dtype=torch.float64)
    module = net.module(net.new(seed=0))
    x, y = blobs().train.of(1)
    torch.autograd.backward(cross_entropy(module(x.double()), y))
    gradient = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    found = update(net, LocalTraining(lr=0.5, epochs=1, batch_size="all"))
    torch.testing.assert_close(found, -0.5 * gradient)


@given(
    size=st.integers(1, 40),
    batch_size=st.integers(1, 50),
    epochs=st.integers(1, 4),
    seed=st.integers(0, 2**63 - 1),
)
def test_every_epoch_visits_every_example_once(
    size: int, batch_size: int, epochs: int, seed: int
) -> None:
    plan = LocalTraining(batch_size=batch_size, epochs=epochs).batching.plan(size, seed)
    assert plan.shape[1] == min(batch_size, size)
    for epoch in np.split(plan, epochs):
        assert sorted(epoch[epoch >= 0].tolist()) == list(range(size))
        assert (epoch[:, 0] >= 0).all()


@given(size=st.integers(1, 40), batch_size=st.integers(1, 50), steps=st.integers(1, 30))
def test_steps_are_counted_exactly(size: int, batch_size: int, steps: int) -> None:
    assert len(LocalTraining(batch_size=batch_size, steps=steps).batching.plan(size, 0)) == steps


@given(
    size=st.integers(1, 40),
    batch_size=st.one_of(st.integers(1, 50), st.just("all")),
    more=st.sampled_from([{"epochs": 3}, {"steps": 5}, {"epochs": 2, "drop_last": True}]),
    clients=st.integers(1, 40),
)
def test_clients_of_one_size_are_planned_together_as_alone(
    size: int, batch_size: Any, more: dict[str, Any], clients: int
) -> None:
    batching, seeds = LocalTraining(batch_size=batch_size, **more).batching, range(7, 7 + clients)
    together = np.concatenate(batching.plans(size, seeds))
    assert (together == np.stack([batching.plan(size, seed) for seed in seeds])).all()


def test_a_smaller_last_batch_may_be_left_out_unless_it_is_all_there_is() -> None:
    full = LocalTraining(batch_size=4, epochs=2, drop_last=True)
    assert full.batching.plan(9, 0).shape == (4, 4)
    assert (full.batching.plan(9, 0) >= 0).all()
    assert full.batching.plan(3, 0).shape == (2, 3)
    assert LocalTraining(batch_size=4, steps=5, drop_last=True).batching.plan(9, 0).shape == (
        5,
        4,
    )


def test_the_learning_rate_decays_once_a_round() -> None:
    local = LocalTraining(lr=0.5, lr_decay=0.9)
    assert local.at_round(0).lr == 0.5
    assert local.at_round(3).lr == pytest.approx(0.5 * 0.9**3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 0.0}, "lr: 0.0 is not more than 0"),
        ({"epochs": 0}, "epochs: 0 is not 1 or more"),
        ({"batch_size": 0}, 'batch_size: 0 is not 1 or more, or "all"'),
        ({"steps": 0}, "steps: 0 is not 1 or more"),
        ({"lr_decay": 1.5}, r"lr_decay: 1.5 is not in \(0, 1\]"),
        ({"proximal": -1.0}, "proximal: -1.0 is not 0 or more"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LocalTraining(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: SGD(momentum=1.0),
        lambda: SGD(weight_decay=-1),
        lambda: Adam(beta1=1.0),
        lambda: Adam(beta2=-0.1),
        lambda: Adam(epsilon=0.0),
        lambda: Adam(weight_decay=-0.1),
    ],
)
def test_optimizer_settings_out_of_range_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match="is not"):
        make()
