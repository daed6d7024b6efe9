"""Every kernel follows every rule by which a model moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

import umbel
from tests.federations import blobs, mlp
from umbel.client.batches import Shard, Step, Steps
from umbel.client.descent import Beside, Descent, Rule
from umbel.client.kernels import by_example
from umbel.client.net import Net
from umbel.client.optimizers import SGD
from umbel.client.work.schemes import HeadFirst

SIZES = (9, 6, 4)
PLAIN = Descent(0.1, 0.0, SGD())
HEAVY = Descent(0.1, 0.4, SGD(momentum=0.9))
DECAYING = Descent(0.1, 0.0, SGD(momentum=0.5, weight_decay=0.1))


def shards() -> list[Shard]:
    """Clients of several sizes, each with two epochs of mini-batches of four examples."""
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(sum(SIZES), 6, generator=draw, dtype=torch.double)
    y = torch.randint(3, (sum(SIZES),), generator=draw)
    found, begin = [], 0
    for size in SIZES:
        order = torch.cat([torch.randperm(size, generator=draw) for _ in range(2)]) + begin
        parts = [part for epoch in torch.split(order, size) for part in torch.split(epoch, 4)]
        rows = torch.stack([torch.cat([p, ~p[:1].expand(4 - len(p))]) for p in parts])
        steps = [Step(part) for part in parts]
        found.append(Shard(x, y, torch.tensor(size), Steps(rows, steps), [Step(order[:size])]))
        begin += size
    return found


def rules(descent: Descent, size: int) -> dict[str, list[Rule]]:
    """A rule for each client, whose tensors differ."""
    draw = torch.Generator().manual_seed(2)
    drawn = [0.1 * torch.randn(size, generator=draw, dtype=torch.double) for _ in SIZES]
    shares = torch.tensor([0.0, 0.3, 1.0], dtype=torch.double)
    return {
        "constant": [replace(descent, constant=each) for each in drawn],
        "first layer fixed": [
            replace(descent, spans=((56, size),), constant=each) for each in drawn
        ],
        "last layer fixed": [replace(descent, spans=((0, 56),), constant=each) for each in drawn],
        "mixed": [Beside(descent, descent, v, a) for v, a in zip(drawn, shares, strict=True)],
        "beside": [Beside(descent, replace(descent, proximal=0.3), v) for v in drawn],
    }


def side_by_side(net: Net, theta: Tensor, every: list[Rule]) -> Tensor:
    """What the clients change, under `vmap`."""
    of_each = shards()
    most = max(len(shard.planned.rows) for shard in of_each)
    rows = torch.stack(
        [
            torch.cat(
                [s.planned.rows, (~s.planned.rows[:1].abs()).expand(most - len(s.planned.rows), -1)]
            )
            for s in of_each
        ]
    )

    def one(own: Tensor, *held: Tensor) -> Tensor:
        planned = Steps(own, [Step(row, padded=True, may_be_empty=True) for row in own])
        return net.descend(theta, replace(of_each[0], planned=planned), every[0].holding(*held))

    tensors = [torch.stack(each) for each in zip(*(rule.held for rule in every), strict=True)]
    changes: Tensor = vmap(one)(rows, *tensors)
    return changes


@pytest.mark.parametrize("descent", [PLAIN, HEAVY, DECAYING], ids=["plain", "heavy", "decaying"])
@pytest.mark.parametrize(
    "name", ["constant", "first layer fixed", "last layer fixed", "mixed", "beside"]
)
@pytest.mark.parametrize("weights", [True, False])
def test_all_kernels_take_the_same_steps(
    name: str, descent: Descent, weights: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_example, "is_faster", lambda *_: not weights)
    net = mlp(dtype=torch.double)
    every, theta = rules(descent, net.layout.num_values)[name], net.new(seed=3)
    expected = torch.stack(
        [
            rule.by_gradients(net.kernel.gradient, theta, shard)
            for rule, shard in zip(every, shards(), strict=True)
        ]
    )
    for each in (net.using("dense"), net):
        torch.testing.assert_close(side_by_side(each, theta, every), expected)
    for each in (net.using("dense"), net.using("in-place")):
        alone = [each.descend(theta, s, rule) for rule, s in zip(every, shards(), strict=True)]
        torch.testing.assert_close(torch.stack(alone), expected)
    if "fixed" in name:
        still = slice(0, 56) if "first" in name else slice(56, None)
        assert not expected[:, still].any()


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        self.double()


def test_statistics_of_layers_that_are_fixed_stay() -> None:
    net = umbel.Net(Normed)
    theta, shard = net.new(seed=3), shards()[2]
    head = replace(PLAIN, spans=((72, net.layout.num_weights),))
    for each in (net, net.using("in-place")):
        change = each.descend(theta, shard, head)
        assert change[72 : net.layout.num_weights].any()
        assert not change[:72].any()
        assert not change[net.layout.num_weights :].any()


@pytest.mark.parametrize("local", [{"epochs": 2}, {"steps": 3}])
def test_engines_divide_mini_batches_between_the_head_and_the_rest_alike(local: Any) -> None:
    scheme = HeadFirst(head=("3.*",), head_epochs=3)
    method = umbel.FedAvg(umbel.LocalTraining(lr=0.1, batch_size=4, scheme=scheme, **local))
    engines = [umbel.Vectorised, umbel.Sequential]
    net, federation = mlp(dtype=torch.double), blobs()
    found = []
    for kernel in ("dense", "general"):
        for engine in engines:
            made = engine(net.using(kernel), federation)
            *_, (state, _) = umbel.Run(method, federation, net, engine=made, seed=1).rounds(2)
            found.append(state.models)
    for each in found[1:]:
        torch.testing.assert_close(each, found[0])
