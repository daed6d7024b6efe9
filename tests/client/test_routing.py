"""Mixtures of experts as adapters: what they compute, and where their values are."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from tests.federations import blobs
from umbel.client.batches import Batch
from umbel.client.experts import slot_shares
from umbel.client.layout import unflatten
from umbel.client.net import Net
from umbel.client.routing import Routing, adapters_of, columns_of, directions
from umbel.client.work import Evaluation, LocalTraining, PersonalTraining, Routed, Work
from umbel.engines import Sequential, Vectorised
from umbel.engines.processes.workers import Workers, can_fork
from umbel.flow import Engine, Request, Rows
from umbel.networks import LoRA
from umbel.testing import adapted_mlp


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.manual_seed(seed), dtype=torch.double)


def experts(net: Net, count: int) -> tuple[Routing, Tensor, Tensor]:
    """Routing, plain models and routers, all of random values."""
    routing = Routing(net.layout, count)
    models = torch.stack([net.new(0)] * count)
    models[:, : net.layout.num_weights] += 0.3 * drawn(count, net.layout.num_weights)
    return routing, models, drawn(count, routing.num_router_values, seed=1)


def whole(routing: Routing, models: Tensor, routers: Tensor) -> Tensor:
    return torch.cat([routing.joined(models, routers), routing.others(models)], 1)


def test_of_the_slots_the_largest_share_out_the_weight_and_the_first_are_all_ones_own() -> None:
    logits = torch.tensor([[2.0, 0.0, 9.0, 1.0, 3.0], [5.0, 4.0, 6.0, 1.0, 3.0]])
    e = torch.tensor([2.0, 9.0, 3.0]).exp() / torch.tensor([2.0, 9.0, 3.0]).exp().sum()
    # Of M = 3 experts: in the first row slots 0 and 2 are in, both the own, and slot 4, the last
    # of the others; in the second row the own expert has all three.
    expected = torch.tensor([[float(e[0] + e[1]), 0.0, float(e[2])], [1.0, 0.0, 0.0]])
    torch.testing.assert_close(slot_shares(logits, 3), expected)


def test_one_slot_of_the_own_expert_is_always_in() -> None:
    shares = slot_shares(drawn(1000, 7), 4)
    assert shares[:, 0].min() > 0
    torch.testing.assert_close(shares.sum(1), torch.ones(1000, dtype=torch.double))
    assert (shares > 0).sum(1).max() == 4


@pytest.mark.parametrize("own", [0, 1, 2])
def test_a_mixture_adds_up_the_experts_with_the_routers_weights(own: int) -> None:
    def build() -> nn.Module:
        layer = nn.Linear(4, 5)
        return LoRA(layer, rank=2, alpha=3.0).double()

    net = Net(build)
    routing, models, routers = experts(net, 3)
    theta = whole(routing, models, routers)[own]
    x = drawn(6, 4, seed=2)
    modules = [net.module(model) for model in models]
    base = modules[0].get_submodule("base")(x)
    order = [own, *(k for k in range(3) if k != own)]
    shares = slot_shares(x @ routers[own].view(5, 4).T, 3)
    added = torch.stack([modules[k](x) - base for k in order], 1)  # (B, M, out)
    expected = base + (shares[..., None] * added).sum(1)
    torch.testing.assert_close(net.routed(3).outputs(theta, x), expected)
    torch.testing.assert_close(net.routed(3).module(theta)(x), expected)


def test_alike_experts_are_as_one_whatever_the_router_says() -> None:
    net = adapted_mlp(torch.float64)
    routing, models, routers = experts(net, 3)
    models = models[:1].repeat(3, 1)
    x = drawn(5, 6)
    expected = net.outputs(models[0], x)
    for theta in whole(routing, models, routers):
        torch.testing.assert_close(net.routed(3).outputs(theta, x), expected)


def test_the_own_part_can_be_taken_apart_again_and_the_rest_stays_behind_it() -> None:
    net = Net(lambda: nn.Sequential(adapted_layer(), nn.BatchNorm1d(3)).double())
    routing, models, routers = experts(net, 2)
    own = routing.joined(models, routers)
    for found, given in zip(routing.parted(own), (models, routers), strict=True):
        assert torch.equal(found, given)
    tensors = routing.own.tensors(own[1])
    assert torch.equal(tensors["0.lora_A.router"].flatten(), routers[1])
    for name, values in net.layout.tensors(models[1]).items():
        assert torch.equal(tensors[name], values)
    assert routing.layout.num_weights == net.layout.num_weights + routing.num_router_values


def adapted_layer() -> nn.Module:
    return LoRA(nn.Linear(6, 3), rank=2)


def test_the_other_experts_are_in_their_order_and_are_not_trained() -> None:
    net = adapted_mlp(torch.float64)
    routing, models, routers = experts(net, 3)
    theta = whole(routing, models, routers)
    others = routing.layout.tensors(theta[1])["1.lora_B.others"]
    for place, expert in enumerate((0, 2)):
        assert torch.equal(others[place], net.layout.tensors(models[expert])["1.lora_B.weight"])
    batch = Batch(drawn(7, 6), torch.arange(7) % 3)
    gradient, rest = net.routed(3).gradient(theta[1], batch)
    slopes = unflatten(gradient, routing.layout.weights)
    assert all(slope.any() for slope in slopes.values())
    assert {name for name in slopes if "router" in name} == {"1.lora_A.router", "3.lora_A.router"}
    assert torch.equal(rest, theta[1][routing.layout.num_weights :])


def test_directions_are_the_mean_cosines_of_b() -> None:
    net = adapted_mlp(torch.float64)
    models = experts(net, 3)[1]
    ups = [each.up.name for each in adapters_of(net.layout)]
    assert ups == ["1.lora_B.weight", "3.lora_B.weight"]
    expected = torch.zeros(3, 3, dtype=torch.double)
    for values in columns_of(models, net.layout, ups):
        expected += torch.cosine_similarity(values[:, None], values[None], dim=2) / 2
    found = directions(models, net.layout)
    torch.testing.assert_close(found @ found.T, expected)
    # A new adapter's B is zero, which points nowhere.
    assert not directions(net.new(0)[None], net.layout).any()


WORKS: list[Work] = [
    LocalTraining(batch_size=4, epochs=2),
    LocalTraining(batch_size=4, steps=5),
    Evaluation(),
    Evaluation(metrics=("macro-f1",)),
    PersonalTraining(LocalTraining(batch_size=4), ("*lora*",)),
]


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("work", WORKS, ids=str)
def test_engines_agree_on_mixtures(work: Work, apart: bool) -> None:
    net, federation = adapted_mlp(torch.float64), blobs()
    routing, models, routers = experts(net, 3)
    own, others = routing.joined(models, routers), routing.others(models)
    index = torch.tensor([0, 1, 2, 1, 0])
    each = {"theta": Rows(own, index), "others": Rows(others, index)}
    if not apart:
        each = {"theta": Rows(torch.cat([own, others], 1), index)}
    asked = Request(Routed(work, 3), torch.tensor([0, 1, 2, 3, 5]), range(5), each=each)
    if apart and isinstance(work, PersonalTraining):
        pytest.skip("personal models are whole")
    expected = Sequential(net, federation).send(asked)
    engines: list[Engine] = [
        Vectorised(net, federation),
        Vectorised(net, federation, memory_mb=1e-6),
        Sequential(net.using("in-place"), federation),
        Sequential(net.in_parts(3), federation),
    ]
    if can_fork() and work == WORKS[0]:
        engines.append(Workers(Vectorised(net, federation, memory_mb=1e-6), 2))
    for engine in engines:
        found = engine.send(asked)
        for name, column in expected.columns.items():
            torch.testing.assert_close(
                found.columns[name], column, rtol=1e-10, atol=1e-10, equal_nan=True
            )
    for name, promise in asked.work.promises(asked.shapes).items():
        assert expected.columns[name].shape[1:] == promise.shape


def test_an_update_is_of_what_is_the_clients_own() -> None:
    net, federation = adapted_mlp(torch.float64), blobs()
    routing, models, routers = experts(net, 2)
    own, others = routing.joined(models, routers), routing.others(models)
    index = torch.zeros(1, dtype=torch.long)
    work = Routed(LocalTraining(batch_size="all", epochs=1, lr=0.5), 2)
    each = {"theta": Rows(own, index), "others": Rows(others, index)}
    engine = Sequential(net, federation)
    update = engine.send(Request(work, index, [0], each=each)).columns["update"][0]
    x, y = federation.train.of(0)
    theta = torch.cat([own[0], others[0]])
    gradient, _ = net.routed(2).gradient(theta, Batch(x.double(), y))
    torch.testing.assert_close(update[: len(gradient)], -0.5 * gradient)
    assert len(update) == routing.own.num_values
    assert not update[len(gradient) :].any()


def test_the_plain_network_is_as_before() -> None:
    net = adapted_mlp(torch.float64)
    theta, x = net.new(0), drawn(3, 6)
    before, built = net.outputs(theta, x), copy.deepcopy(net.modules.training)
    assert net.routed(2) is net.routed(2)
    assert torch.equal(net.outputs(theta, x), before)
    assert repr(net.modules.training) == repr(built)


class Attentive(nn.Module):
    """Sequences (B, L, 6) -> (B, 3), with adapters on the values of an attention."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Linear(6, 6).requires_grad_(False)
        self.values = LoRA(nn.Linear(6, 6), rank=2)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        seen = (self.keys(x) @ x.transpose(1, 2)).softmax(2) @ self.values(x)
        out: Tensor = self.head(seen.mean(1))
        return out


def test_each_place_of_a_sequence_has_its_own_weights() -> None:
    net, federation = Net(lambda: Attentive().double()), blobs(shape=(5, 6))
    routing, models, routers = experts(net, 2)
    own, others = routing.joined(models, routers), routing.others(models)
    index = torch.tensor([0, 1, 1])
    each = {"theta": Rows(own, index), "others": Rows(others, index)}
    asked = Request(Routed(LocalTraining(batch_size=4), 2), index.cumsum(0), range(3), each=each)
    expected = Sequential(net, federation).send(asked).columns["update"]
    found = Vectorised(net, federation).send(asked).columns["update"]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    x = drawn(4, 5, 6)
    shares = slot_shares(x @ routers[0].view(3, 6).T, 2)
    assert shares.shape == (4, 5, 2)
    assert len(set(shares[..., 0].flatten().tolist())) > 10
