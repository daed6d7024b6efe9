"""Transformers models with adapters of peft, as networks."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import umbel
from tests.networks.tiny import IDS, LONGEST, lora, made
from umbel.client.batches import Batch
from umbel.networks import adapted
from umbel.networks.adapters import TokenNetwork

OF_GPT2: dict[str, Any] = {"target_modules": ["c_attn"], "fan_in_fan_out": True}

KINDS = {
    "texts": ("BertForSequenceClassification", lora()),
    "tokens": ("BertForTokenClassification", lora("TOKEN_CLS")),
    "next tokens": ("GPT2LMHeadModel", lora("CAUSAL_LM", **OF_GPT2)),
    "texts, by the last token": ("GPT2ForSequenceClassification", lora(**OF_GPT2)),
}


def texts(lengths: list[int], places: int, pad: int = 0, seed: int = 1) -> Tensor:
    """Token ids (B, places) of texts of these lengths."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, IDS, (len(lengths), places), generator=generator)
    return ids.where(torch.arange(places) < torch.tensor(lengths)[:, None], pad)


def moved(net: umbel.Net, seed: int = 0) -> Tensor:
    """A model whose adapters are not at their start, where one of the matrices is zero."""
    theta = net.new(seed).clone()
    theta[: net.layout.num_weights] += 0.3 * torch.randn(
        net.layout.num_weights, generator=torch.Generator().manual_seed(2)
    )
    return theta


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pad", [0, -1])
def test_padding_leaves_outputs_as_they_are(kind: str, pad: int) -> None:
    name, config = KINDS[kind]
    net = umbel.Net(adapted(made(name), config, pad=0))
    theta, lengths = moved(net), [5, 3, 7, 1]
    x = texts(lengths, 12, pad)
    together = net.outputs(theta, x)
    for row, length in enumerate(lengths):
        alone = net.outputs(theta, x[row : row + 1, :length])
        if together.dim() == 2:
            torch.testing.assert_close(together[row : row + 1], alone)
        else:
            torch.testing.assert_close(together[row : row + 1, :, :length], alone)
            assert not together[row, :, length:].any()


def test_token_wise_outputs_have_a_place_for_every_id() -> None:
    net = umbel.Net(adapted(made("GPT2LMHeadModel"), lora("CAUSAL_LM", **OF_GPT2), pad=0))
    assert net.outputs(net.new(0), texts([3, 4], 11)).shape == (2, IDS, 11)


def test_a_mini_batch_is_read_up_to_its_longest_example() -> None:
    module = adapted(made("BertForSequenceClassification"), lora())()
    assert isinstance(module, TokenNetwork)
    shapes = []
    module.network.register_forward_pre_hook(
        lambda *given: shapes.append(tuple(given[2]["input_ids"].shape)), with_kwargs=True
    )
    module(texts([5, 3], 12))
    module(texts([2, 3], 12))
    module(texts([0, 0], 12))
    assert shapes == [(2, 5), (2, 3), (2, 1)]


def test_models_differ_in_their_adapters_alone_and_new_heads_by_seed() -> None:
    given = made("BertForSequenceClassification", num_labels=3)
    net = umbel.Net(adapted(given, lora()))
    one, other = net.layout.tensors(net.new(1)), net.layout.tensors(net.new(2))
    differing = {name for name in one if not torch.equal(one[name], other[name])}
    trained = {entry.name for entry in net.layout.weights}
    assert differing == {name for name in trained if "lora_A" in name}
    (head,) = (
        name for name in trained if name.endswith("classifier.modules_to_save.default.weight")
    )
    assert torch.equal(one[head], given.classifier.weight)
    anew = umbel.Net(adapted(given, lora(), new_head=True))
    drawn = anew.layout.tensors(anew.new(1))[head]
    assert not torch.equal(drawn, given.classifier.weight)
    assert not torch.equal(drawn, anew.layout.tensors(anew.new(2))[head])
    assert torch.equal(anew.new(1), anew.new(1))


def test_builds_share_the_memory_of_what_is_frozen_and_leave_the_model_as_it_is() -> None:
    given = made("BertForSequenceClassification")
    before = {name: tensor.clone() for name, tensor in given.state_dict().items()}
    build = adapted(given, lora(bias="all"))
    one, other = dict(build().named_parameters()), dict(build().named_parameters())
    for name, tensor in one.items():
        shared = tensor.data_ptr() == other[name].data_ptr()
        assert shared != tensor.requires_grad, name
    assert any("query.base_layer.bias" in name and one[name].requires_grad for name in one)
    after = given.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(tensor.requires_grad for tensor in given.parameters())


def test_a_federation_trains_adapters_and_head() -> None:
    given = made("BertForSequenceClassification", initializer_range=0.3)
    net = umbel.Net(adapted(given, lora(), new_head=True))
    rng = np.random.default_rng(0)

    def client(seed: int) -> tuple[Any, Any]:
        x = texts(rng.integers(2, 9, 30).tolist(), 9, seed=seed).numpy()
        return x, (x[:, 0] > IDS // 2).astype(np.int64)

    federation = umbel.Federation.from_arrays([client(seed) for seed in range(3)])
    local = umbel.LocalTraining(lr=0.2, epochs=4, batch_size=8)
    run = umbel.Run(umbel.FedAvg(local=local), federation, net, seed=0)
    *_, (state, _) = run.rounds(3)
    everything = Batch(federation.train.x, federation.train.y)
    start = run.start(1).models[0]
    before, after = (net.losses(theta, everything).mean() for theta in (start, state.models[0]))
    assert after < before - 0.02
    change = net.layout.tensors(state.models[0] - start)
    trained = {entry.name for entry in net.layout.weights}
    assert {name for name, moved in change.items() if moved.any()} == trained


def test_a_model_without_a_head_is_refused() -> None:
    with pytest.raises(umbel.UsageError, match="model: its outputs have no logits"):
        adapted(made("BertModel"), lora(None))


def test_adapters_of_layers_that_are_not_there_are_refused() -> None:
    with pytest.raises(umbel.UsageError, match=r"config: .*target_modules"):
        adapted(made("BertForSequenceClassification"), lora(target_modules=["nowhere"]))


def test_a_start_that_changes_frozen_weights_is_refused_and_changes_nothing() -> None:
    given = made("BertForSequenceClassification")
    before = {name: tensor.clone() for name, tensor in given.state_dict().items()}
    with pytest.raises(umbel.UsageError, match="init_lora_weights: 'pissa' is not a start"):
        adapted(given, lora(init_lora_weights="pissa"))
    assert all(torch.equal(before[name], each) for name, each in given.state_dict().items())


def test_texts_longer_than_the_network_knows_are_refused() -> None:
    net = umbel.Net(adapted(made("BertForSequenceClassification"), lora()))
    with pytest.raises(umbel.UsageError, match=f"17 is not at most {LONGEST}, the positions"):
        net.outputs(net.new(0), texts([3], LONGEST + 1))


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.zeros(2, 3), "x: the network reads token ids: give x as whole numbers"),
        (torch.zeros(2, dtype=torch.long), r"x: \(2,\) is not of the shape \(B, L\)"),
        (torch.zeros((2, 0), dtype=torch.long), r"x: \(2, 0\) is not of at least one token"),
    ],
)
def test_what_is_no_batch_of_ids_is_refused(x: Tensor, said: str) -> None:
    net = umbel.Net(adapted(made("BertForSequenceClassification"), lora()))
    with pytest.raises(umbel.UsageError, match=said):
        net.outputs(net.new(0), x)


def test_without_peft_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(
        importlib.import_module("umbel.networks.packages"), "import_module", missing
    )
    with pytest.raises(umbel.UsageError, match=r"adapted: needs the package 'peft'.*umbel\[peft\]"):
        adapted(torch.nn.Linear(2, 2), None)
