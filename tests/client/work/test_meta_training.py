"""The client's side of Per-FedAvg against autograd, each factor from its own mini-batch."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, jacrev
from torch.nn.functional import cross_entropy

from tests.federations import blobs, each_its_own, mlp
from umbel.client.net import Net
from umbel.client.optimizers import SGD
from umbel.client.work import LocalTraining, MetaTraining
from umbel.client.work.meta_training import Variant
from umbel.engines import Sequential
from umbel.flow import Request

NET: Net = mlp(dtype=torch.float64)
THETA = NET.new(0)
SEED = 3


def work(variant: Variant, steps: int = 1, delta: float = 1e-4) -> MetaTraining:
    return MetaTraining(LocalTraining(lr=0.1, batch_size=4, steps=steps), 0.3, variant, delta)


def do(work: MetaTraining) -> Tensor:
    """The update of client 1."""
    theta = {"theta": each_its_own(THETA[None])}
    request = Request(work, torch.tensor([1]), [SEED], each=theta)
    return Sequential(NET, blobs()).send(request).columns["update"][0]


def loss(theta: Tensor, rows: list[int]) -> Tensor:
    x, y = blobs().train.of(1)
    return cross_entropy(NET.outputs(theta, x[rows].double()), y[rows])


def slope(theta: Tensor, rows: list[int]) -> Tensor:
    theta = theta.detach().requires_grad_()
    return torch.autograd.grad(loss(theta, rows), theta)[0]


class Masked(nn.Module):
    """Dropout by masks that `draw` gives for a shape."""

    def __init__(self, draw: Callable[[torch.Size], Tensor]) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.draw(x.shape) > 0.5) if self.training else x / 2


@pytest.mark.parametrize(
    "draw",
    [
        torch.rand,
        lambda shape: torch.from_numpy(np.random.random(shape)),  # noqa: NPY002
        lambda shape: torch.tensor([random.random() for _ in range(shape.numel())]).view(shape),
    ],
    ids=["PyTorch", "NumPy", "Python"],
)
def test_the_hessian_is_that_of_one_draw_of_dropout(draw: Callable[[torch.Size], Tensor]) -> None:
    net = Net(lambda: nn.Sequential(nn.Linear(6, 8), Masked(draw), nn.Linear(8, 3)).double())
    net = net.using("in-place")
    theta = {"theta": each_its_own(net.new(0)[None])}

    def update(delta: float) -> Tensor:
        request = Request(work("hessian-free", delta=delta), torch.tensor([1]), [SEED], each=theta)
        return Sequential(net, blobs()).send(request).columns["update"][0]

    torch.testing.assert_close(update(1e-6), update(1e-4), rtol=1e-2, atol=1e-4)


def test_every_gradient_has_a_mini_batch_of_its_own() -> None:
    plan = work("exact", steps=6).batching.plan(17, SEED)
    assert plan.shape == (18, 4)
    inner, outer, second = plan[0::3], plan[1::3], plan[2::3]
    for drawn in (inner, outer, second):
        assert len(drawn) == 6
        seen = drawn[:5][drawn[:5] >= 0]  # an epoch: 17 examples in five batches
        assert sorted(seen) == list(range(17))
    assert not np.array_equal(inner, outer)
    assert not np.array_equal(outer, second)
    assert len(work("first-order", steps=6).batching.plan(17, SEED)) == 12


def test_first_order_leaves_the_hessian_out() -> None:
    inner, outer = work("first-order").batching.plan(17, SEED).tolist()
    expected = -0.1 * slope(THETA - 0.3 * slope(THETA, inner), outer)
    torch.testing.assert_close(do(work("first-order")), expected)


@pytest.mark.parametrize(("variant", "tolerance"), [("exact", 1e-10), ("hessian-free", 1e-5)])
def test_the_hessian_is_of_the_third_mini_batch(variant: Variant, tolerance: float) -> None:
    inner, outer, second = work(variant).batching.plan(17, SEED).tolist()
    vector = slope(THETA - 0.3 * slope(THETA, inner), outer)

    def on_third(theta: Tensor) -> Tensor:
        return loss(theta, second)

    hessian = jacrev(grad(on_third))(THETA)
    expected = -0.1 * (vector - 0.3 * hessian @ vector)
    torch.testing.assert_close(do(work(variant)), expected, rtol=tolerance, atol=tolerance)


def test_on_all_examples_it_is_the_gradient_of_the_loss_one_step_later() -> None:
    local = LocalTraining(lr=0.1, batch_size="all", steps=1)
    rows = list(range(17))
    theta = THETA.clone().requires_grad_()
    (inner,) = torch.autograd.grad(loss(theta, rows), theta, create_graph=True)
    (expected,) = torch.autograd.grad(loss(theta - 0.3 * inner, rows), theta)
    torch.testing.assert_close(do(MetaTraining(local, 0.3, "exact", 1e-3)), -0.1 * expected)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_proximal_term_of_its_training_is_not_left_out(momentum: float) -> None:
    # Without the inner step, on all examples, this is local training.
    local = LocalTraining(
        lr=0.1, epochs=4, batch_size="all", proximal=3.0, optimizer=SGD(momentum=momentum)
    )
    theta = {"theta": each_its_own(THETA[None])}
    meta, plain = (
        Sequential(NET, blobs()).send(Request(work, torch.tensor([1]), [SEED], each=theta))
        for work in (MetaTraining(local, 1e-12, "first-order", 1e-4), local)
    )
    torch.testing.assert_close(meta.columns["update"], plain.columns["update"])
