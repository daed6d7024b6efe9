from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from umbel.checks import UsageError
from umbel.client.batches import Batch
from umbel.client.layout import unflatten
from umbel.client.net import Net
from umbel.networks import MLP, LoRA


def layer(num_inputs: int = 3, num_outputs: int = 2, **given: Any) -> LoRA:
    return LoRA(nn.Linear(num_inputs, num_outputs), **given)


def test_a_new_layer_computes_what_its_base_does() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made, x = layer(), torch.randn(5, 3)
    assert made.lora_A.weight.any()
    assert not made.lora_B.weight.any()
    assert torch.equal(made(x), made.base(x))


def test_the_adapter_adds_alpha_over_rank_times_b_a_x() -> None:
    made = layer(2, 1, rank=1, alpha=3.0)
    with torch.no_grad():
        made.base.weight.copy_(torch.tensor([[1.0, 2.0]]))
        made.base.bias.fill_(0.5)
        made.lora_A.weight.copy_(torch.tensor([[1.0, -1.0]]))
        made.lora_B.weight.fill_(2.0)
    # 1 + 2 * 4 + 0.5, and 3/1 * 2 * (1 - 4).
    assert made(torch.tensor([[1.0, 4.0]])).item() == 9.5 - 18


def test_the_adapter_starts_as_the_weights_of_a_linear_layer() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = layer(400, 10, rank=50)
    # Uniform within 1/sqrt(in), as torch draws them: its deviation is that times 1/sqrt(3).
    assert made.lora_A.weight.abs().max() <= 1 / 20
    assert made.lora_A.weight.std().item() == pytest.approx(1 / 20 / 3**0.5, rel=0.05)


def test_only_the_adapter_is_trained() -> None:
    made = layer(3, 2, rank=4)
    trained = {name for name, p in made.named_parameters() if p.requires_grad}
    assert trained == {"lora_A.weight", "lora_B.weight"}
    assert sum(p.numel() for p in made.parameters() if p.requires_grad) == 4 * 3 + 2 * 4


def test_dropout_is_on_the_adapters_inputs_and_in_training_alone() -> None:
    made, x = layer(3, 2, dropout=0.5), torch.ones(64, 3)
    nn.init.ones_(made.lora_B.weight)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert len(made(x).unique(dim=0)) > 1
    assert len(made.eval()(x).unique(dim=0)) == 1
    assert torch.equal(made.base(x), made.base(x))


def test_the_adapter_of_a_base_in_bfloat16_is_in_single_precision() -> None:
    made = LoRA(nn.Linear(3, 2).bfloat16())
    assert made.lora_A.weight.dtype == made.lora_B.weight.dtype == torch.float32
    assert made(torch.ones(4, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert LoRA(nn.Linear(3, 2).double()).lora_B.weight.dtype == torch.float64


def test_a_network_of_such_layers_is_a_net_like_any() -> None:
    net = Net(lambda: nn.Sequential(layer(4, 5, rank=2), nn.ReLU(), nn.Linear(5, 3)))
    assert net.layout.num_weights == (2 * 4 + 5 * 2) + (5 * 3 + 3)
    gradient, _ = net.gradient(net.new(0), Batch(torch.ones(2, 4), torch.tensor([0, 1])))
    of = unflatten(gradient, net.layout.weights)
    # Where B is zero, A has no slope yet, and B has.
    assert not of["0.lora_A.weight"].any()
    assert of["0.lora_B.weight"].any()


def test_an_mlp_with_adapters_has_frozen_hidden_layers_and_a_head_that_trains() -> None:
    net = Net(lambda: MLP((20, 10), adapters=3).build((4, 4), 5))
    assert net.num_frozen == 16 * 20 + 20 + 20 * 10 + 10
    assert net.layout.num_weights == 3 * (16 + 20) + 3 * (20 + 10) + 10 * 5 + 5
    with pytest.raises(UsageError, match="adapters: 0 is not 1 or more"):
        MLP(adapters=0)


@pytest.mark.parametrize(
    ("given", "named"),
    [({"rank": 0}, "rank: 0"), ({"alpha": 0.0}, "alpha: 0.0"), ({"dropout": 1.0}, "dropout: 1.0")],
)
def test_bad_settings_are_refused(given: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        layer(**given)


def test_other_layers_are_refused() -> None:
    other: Any = nn.Conv2d(1, 1, 3)
    with pytest.raises(UsageError, match=r"linear: 'Conv2d' is not an nn\.Linear"):
        LoRA(other)
