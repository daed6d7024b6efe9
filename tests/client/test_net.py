from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.federations import mlp
from umbel.checks import UsageError
from umbel.client.batches import Batch, Shard, Step, Steps
from umbel.client.descent import Descent
from umbel.client.kernel_choice import KernelName
from umbel.client.net import Net
from umbel.client.objectives import CLASSIFICATION, REGRESSION, Objective
from umbel.client.optimizers import SGD


def with_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))


class Tied(nn.Module):
    """Two layers that share a weight, one of them frozen in its bias; a buffer not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.second.bias.requires_grad_(False)
        self.register_buffer("scale", torch.rand(1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(self.first(x)) * self.scale
        return out


class Buffers(nn.Module):
    """A causal mask, a table of its own, a counter that is not saved, and statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1))
        self.register_buffer("mine", torch.randn(4))
        self.register_buffer("calls", torch.zeros(1), persistent=False)
        self.layer, self.norm = nn.Linear(4, 2), nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)  # type: ignore[operator]
        attended = self.mask.softmax(1) @ (x + self.mine).T  # type: ignore[operator]
        out: torch.Tensor = self.norm(self.layer(attended.T)) / self.calls
        return out


@pytest.mark.parametrize("build", [with_norm, Tied, Buffers, lambda: nn.LSTM(3, 4)])
def test_flattening_and_rebuilding_a_module_is_exact(build: type[nn.Module]) -> None:
    net = Net(build)
    theta = net.new(seed=5)
    again = net.flatten(net.module(theta))
    assert torch.equal(theta, again)
    assert len(theta) == net.layout.num_values


def test_a_module_and_its_net_compute_the_same() -> None:
    net, x = Net(with_norm), torch.randn(7, 4, generator=torch.manual_seed(0))
    theta = net.new(seed=1)
    torch.testing.assert_close(net.outputs(theta, x), net.module(theta)(x))


def test_new_models_are_functions_of_the_seed_and_leave_the_global_generator_alone() -> None:
    net, before = mlp(), torch.get_rng_state()
    assert torch.equal(net.new(3), net.new(3))
    assert not torch.equal(net.new(3), net.new(4))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_weight_that_two_layers_share_is_in_theta_once() -> None:
    layout = Net(Tied).layout
    assert [entry.name for entry in layout.weights] == ["first.weight", "first.bias"]
    assert layout.rest == ()
    assert layout.num_values == 20


def used_twice() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize("build", [used_twice, Tied])
def test_a_module_has_its_parameters_again_after_a_pass(build: Callable[[], nn.Module]) -> None:
    net, x = Net(build), torch.randn(3, 4, generator=torch.manual_seed(0))
    theta = net.new(1)
    batch = Batch(x, torch.tensor([0, 1, 0]))
    outputs, (slope, _) = net.outputs(theta, x), net.gradient(theta, batch)
    module = net.module(theta)
    trained = [p for p in module.parameters() if p.requires_grad and type(p) is nn.Parameter]
    assert len(trained) == len(net.layout.weights)
    torch.testing.assert_close(module(x), outputs)
    torch.autograd.backward(batch.mean(net.objective.losses(module(x), batch.y)))
    slopes = [p.grad.flatten() for p in trained if p.grad is not None]
    torch.testing.assert_close(torch.cat(slopes), slope)


def test_of_buffers_only_those_that_training_moves_are_in_theta() -> None:
    names = [entry.name for entry in Net(Buffers).layout.rest]
    assert names == ["norm.running_mean", "norm.running_var"]
    named = Net(Buffers, moving=["mi*"]).layout.rest
    assert [entry.name for entry in named] == ["mine", "norm.running_mean", "norm.running_var"]
    with pytest.raises(
        UsageError, match=r"moving: 'theirs' is not a pattern for any of mask, mine"
    ):
        Net(Buffers, moving=["theirs"])


def test_all_models_share_the_constants_of_the_module() -> None:
    net = Net(Buffers)
    one, other = net.module(net.new(1)), net.module(net.new(2))
    assert torch.equal(one.get_buffer("mine"), other.get_buffer("mine"))
    assert not torch.equal(one.get_parameter("layer.weight"), other.get_parameter("layer.weight"))


def test_the_gradient_is_autograds() -> None:
    net = mlp()
    generator = torch.manual_seed(0)
    x, y = torch.randn(9, 6, generator=generator), torch.arange(9) % 3
    theta = net.new(seed=2)
    module = net.module(theta)
    torch.autograd.backward(cross_entropy(module(x), y))
    expected = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    gradient, rest = net.gradient(theta, Batch(x, y))
    torch.testing.assert_close(gradient, expected)
    assert len(rest) == 0


@pytest.mark.parametrize("kernel", ["general", "dense"])
@pytest.mark.parametrize("objective", [CLASSIFICATION, REGRESSION])
def test_many_models_may_be_trained_on_the_same_examples(
    kernel: KernelName, objective: Objective
) -> None:
    build = lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))  # noqa: E731
    net = Net(build, objective).using(kernel)
    rng = torch.Generator().manual_seed(0)
    x, labels = torch.randn(6, 4, generator=rng), torch.arange(6) % 3
    y = torch.randn(6, 3, generator=rng) if objective == REGRESSION else labels
    models = torch.stack([net.new(seed) for seed in range(3)])

    def updated(theta: torch.Tensor, steps: int) -> torch.Tensor:
        rows = torch.arange(6).view(steps, -1)
        planned = Steps(rows, [Step(row) for row in rows])
        shard = Shard(x, y, torch.tensor(6), planned, [Step(torch.arange(6))])
        return net.descend(theta, shard, Descent(lr=0.1, proximal=0.0, optimizer=SGD()))

    functions: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda theta: net.gradient(theta, Batch(x, y))[0],
        lambda theta: updated(theta, steps=1),
        lambda theta: updated(theta, steps=3),
    ]
    for function in functions:
        expected = torch.stack([function(theta) for theta in models])
        torch.testing.assert_close(net.each(function, models), expected)


def test_padding_changes_neither_loss_nor_gradient() -> None:
    net, theta = mlp(), mlp().new(seed=2)
    x, y = torch.randn(5, 6, generator=torch.manual_seed(1)), torch.arange(5) % 3
    padded = Batch(
        torch.cat([x, torch.full((3, 6), 9.0)]),
        torch.cat([y, torch.zeros(3, dtype=torch.long)]),
        torch.arange(8) < 5,
    )
    torch.testing.assert_close(net.gradient(theta, padded)[0], net.gradient(theta, Batch(x, y))[0])
    exact = Batch(x, y).mean(net.losses(theta, Batch(x, y)))
    torch.testing.assert_close(padded.mean(net.losses(theta, padded)), exact)
    assert float(padded.size()) == 5


def test_batch_normalisation_moves_its_statistics_as_the_module_itself_does() -> None:
    net = Net(with_norm)
    x, y = torch.randn(9, 4, generator=torch.manual_seed(0)), torch.arange(9) % 2
    theta = net.new(seed=0)
    untouched = theta.clone()
    module = net.module(theta).train()
    module(x)
    _, rest = net.gradient(theta, Batch(x, y))
    torch.testing.assert_close(rest, net.flatten(module)[net.layout.num_weights :])
    assert torch.equal(theta, untouched)
    assert torch.equal(net.gradient(theta, Batch(x, y))[1], rest)  # nothing is remembered


def test_patterns_select_values_by_the_names_of_their_tensors() -> None:
    layout = Net(with_norm).layout
    mask = layout.mask(["0.*", "3.bias"])
    tensors = layout.tensors(mask)
    assert [name for name, hit in tensors.items() if hit.all()] == ["0.weight", "0.bias", "3.bias"]
    assert int(mask.sum()) == 4 * 5 + 5 + 2
    with pytest.raises(UsageError, match=r"shared: 'trunk\.\*' is not a pattern for any of 0\.w"):
        layout.mask(["trunk.*"])


def test_objectives_give_a_value_an_example_whatever_its_shape() -> None:
    logits, labels = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])
    assert CLASSIFICATION.correct(logits, labels).tolist() == [1.0, 0.0]
    images = torch.zeros(4, 3, 5, 5), torch.zeros(4, 5, 5, dtype=torch.long)
    assert CLASSIFICATION.losses(*images).shape == (4,)
    assert CLASSIFICATION.correct(*images).tolist() == [1.0] * 4
    assert REGRESSION.losses(torch.tensor([[1.0, 3.0]]), torch.zeros(1, 2)).tolist() == [5.0]
    assert REGRESSION.correct(logits, logits).isnan().all()


def test_what_is_not_a_way_to_build_a_module_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Net\(lambda: MyModule"):
        Net(nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"not an nn\.Module"):
        Net(lambda: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError, match="no parameter to train: layers in a list or dict"):
        Net(nn.ReLU)
    with pytest.raises(UsageError, match="no parameter to train: all are frozen"):
        Net(lambda: nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(UsageError, match="mixes"):
        Net(lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
