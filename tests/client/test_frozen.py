"""theta holds what trains; what is frozen is shared by all models, and named by a digest."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.federations import blobs
from tests.frozen import HalfBackbone, Trunk
from umbel.checks import UsageError
from umbel.client.batches import Batch
from umbel.client.kernel_choice import KernelName
from umbel.client.kernels.in_place import InPlace
from umbel.client.layout import freeze
from umbel.client.net import Net
from umbel.engines import Sequential, Vectorised

X = torch.randn(7, 6, generator=torch.manual_seed(0))
Y = torch.arange(7) % 3


def names(net: Net) -> list[str]:
    return [entry.name for entry in net.layout.weights + net.layout.rest]


def test_theta_holds_what_trains_and_nothing_else() -> None:
    net = Net(HalfBackbone)
    assert names(net) == ["head.weight", "head.bias"]
    assert len(net.new(0)) == net.layout.num_values == 27
    assert net.dtype == torch.float32
    assert net.num_frozen == 6 * 8 + 8 + 8 + 8
    assert repr(net) == "Net: HalfBackbone, 27 trained values and 72 frozen, classification"


def test_patterns_choose_what_trains() -> None:
    assert names(Net(Trunk, trained=["head.*"])) == ["head.weight", "head.bias"]
    assert names(Net(Trunk, trained=["*.2.bias", "head.bias"])) == ["trunk.2.bias", "head.bias"]
    with pytest.raises(UsageError, match=r"trained: 'top\.\*' is not a pattern for any of trunk\."):
        Net(Trunk, trained=["top.*"])
    with pytest.raises(UsageError, match=r"trained: levels holds torch\.int8, which can't be"):
        Net(HalfBackbone, trained=["levels"])
    with pytest.raises(UsageError, match=r"trained: 'head' is not a list; write \['head'\]"):
        Net(Trunk, trained="head")
    with pytest.raises(UsageError, match="Trunk has no parameter to train"):
        Net(Trunk, trained=[])


def test_patterns_choose_what_is_frozen() -> None:
    module = Trunk()
    freeze(module, ["trunk.0.*"])
    assert next(n for n, p in module.named_parameters() if p.requires_grad) == "trunk.2.weight"
    with pytest.raises(UsageError, match=r"freeze: 'body\.\*' is not a pattern for any of"):
        freeze(module, ["body.*"])


def test_all_models_have_the_frozen_values_of_the_first() -> None:
    net = Net(Trunk, trained=["head.*"])
    one, other = net.module(net.new(1)), net.module(net.new(2))
    assert torch.equal(one.get_parameter("trunk.0.weight"), other.get_parameter("trunk.0.weight"))
    assert not torch.equal(one.get_parameter("head.weight"), other.get_parameter("head.weight"))


def test_the_frozen_values_are_in_memory_once() -> None:
    net = Net(HalfBackbone).using("in-place")
    kernel = net.kernel
    assert isinstance(kernel, InPlace)
    for name, tensor in net.modules.frozen.items():
        copies = [
            net.modules.evaluating,
            kernel.module,
            net.to(torch.device("cpu")).modules.training,
        ]
        for module in copies:
            tensors = dict([*module.named_parameters(), *module.named_buffers()])
            assert tensors[name].data_ptr() == tensor.data_ptr(), name


def test_the_digest_tells_frozen_values_apart_by_every_bit() -> None:
    def with_last(value: float) -> Net:
        def build() -> nn.Module:
            module = HalfBackbone()
            with torch.no_grad():
                module.backbone.bias[-1] = value
            return module

        return Net(build)

    assert with_last(1.0).frozen_digest == with_last(1.0).frozen_digest
    assert with_last(1.0).frozen_digest != with_last(1.0078125).frozen_digest  # the next bfloat16
    assert Net(Trunk).frozen_digest == ""
    assert (
        Net(Trunk, trained=["head.*"]).frozen_digest != Net(Trunk, trained=["*bias"]).frozen_digest
    )


@pytest.mark.parametrize("kernel", ["general", "in-place"])
def test_gradients_are_autograds_for_what_trains(kernel: KernelName) -> None:
    net = Net(HalfBackbone).using(kernel)
    theta = net.new(3)
    module = net.module(theta).train()
    torch.autograd.backward(nn.functional.cross_entropy(module(X), Y))
    expected = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    gradient, rest = net.gradient(theta, Batch(X, Y))
    torch.testing.assert_close(gradient, expected)
    assert len(rest) == 0


@pytest.mark.parametrize("build", [HalfBackbone, lambda: Trunk()])
def test_engines_agree_and_leave_what_is_frozen_as_it_is(build: type[nn.Module]) -> None:
    federation, states = blobs(), []
    net = Net(build, trained=["head.*"])
    before = {name: tensor.clone() for name, tensor in net.modules.frozen.items()}
    for engine in (
        Sequential(net.using("in-place"), federation),
        Sequential(net, federation),
        Vectorised(net, federation),
    ):
        local = umbel.LocalTraining(lr=0.1, epochs=2, batch_size=4)
        run = umbel.Run(umbel.FedAvg(local=local), federation, net, engine=engine)
        states.append([state.models for state, _ in run.rounds(2)][-1])
    close = 2 * net.eps  # products of bfloat16 numbers are rounded in another order
    torch.testing.assert_close(states[0], states[1], rtol=close, atol=close)
    torch.testing.assert_close(states[0], states[2], rtol=close, atol=close)
    assert states[0].shape == (1, 27)
    assert all(torch.equal(tensor, before[n]) for n, tensor in net.modules.frozen.items())


def test_a_frozen_parameter_that_training_changes_is_named() -> None:
    class Drifting(Trunk):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                self.trunk[0].bias.add_(1)  # type: ignore[operator]
            return super().forward(x)

    run = umbel.Run(umbel.FedAvg(), blobs(), Net(Drifting, trained=["head.*"]))
    with pytest.raises(UsageError, match=r"training changes trunk\.0\.bias, which is frozen"):
        list(run.rounds(1))
