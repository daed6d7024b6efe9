"""What clients trained, as the adapters that peft reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import umbel
from tests.federations import blobs
from tests.folder.saved import make_run
from tests.networks.tiny import IDS, encoder, lora, made, peft
from umbel.networks import TextClassifier, adapted

LOCAL = umbel.LocalTraining(lr=0.3, epochs=1, batch_size=5)
OF_GPT2: dict[str, Any] = {"target_modules": ["c_attn"], "fan_in_fan_out": True}


def federation(places: int = 8, most: int = IDS) -> umbel.Federation:
    """Three clients with ids of texts, padded by 0."""
    rng = np.random.default_rng(0)

    def client() -> tuple[Any, Any]:
        x = rng.integers(1, most, (10, places))
        x[np.arange(places) >= rng.integers(2, places + 1, (10, 1))] = 0
        return x, rng.integers(0, 2, 10)

    return umbel.Federation.from_arrays([client() for _ in range(3)])


def unequal(rows: int, places: int, most: int) -> Tensor:
    x = torch.randint(1, most, (rows, places), generator=torch.Generator().manual_seed(0))
    return x.where(torch.arange(places) < 2 + torch.arange(rows)[:, None], 0)


def classifier() -> Any:
    return made("BertForSequenceClassification")


NET = umbel.Net(adapted(classifier(), lora(), new_head=True))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> umbel.Result:
    run = umbel.Run(umbel.LocalOnly(LOCAL), federation(), NET)
    folder = tmp_path_factory.mktemp("runs") / "mine"
    run.save(folder, 1)
    return umbel.load(folder, NET)


def test_peft_reads_what_a_client_trained(tuned: umbel.Result) -> None:
    done = tuned.export("peft", client=1)
    assert done.file.parent == tuned.folder.file("exported")
    assert sorted(file.name for file in done.file.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    assert done.largest_difference < 1e-6
    ours = tuned.model_for(1)
    theirs = peft.PeftModel.from_pretrained(classifier(), done.file).eval()
    x = unequal(5, 8, IDS)
    with torch.no_grad():
        logits = theirs(input_ids=x, attention_mask=(x != 0).long()).logits
        torch.testing.assert_close(logits, ours(x))
        assert not torch.allclose(logits, tuned.model_for(2)(x))
    assert json.loads((done.file / "adapter_config.json").read_text())["peft_type"] == "LORA"
    assert sum(
        tensor.numel() for tensor in load_file(done.file / "adapter_model.safetensors").values()
    ) == (tuned.net.layout.num_weights)
    again = tuned.export("peft", client=2, out=done.file)
    assert again.file == done.file


@pytest.mark.parametrize("to", [pytest.param("onnx", marks=pytest.mark.long), "torch"])
def test_networks_with_adapters_are_exported_whole(
    to: Any, tuned: umbel.Result, tmp_path: Path
) -> None:
    if to == "onnx":
        pytest.importorskip("onnxscript", reason="umbel[onnx] is not installed")
    done = tuned.export(to, client=0, out=tmp_path / "model")
    assert done.largest_difference < 1e-5
    if to == "torch":
        x = unequal(5, 8, IDS)
        with torch.no_grad():
            program = torch.export.load(done.file).module()
            torch.testing.assert_close(program(x), tuned.model_for(0)(x))


@pytest.mark.thorough
def test_a_text_classifier_is_exported(tmp_path: Path) -> None:
    recipe = TextClassifier(encoder=str(encoder(tmp_path / "tiny")), adapters=2)
    net = umbel.Net(lambda: recipe.build((8,), 2))
    run = umbel.Run(umbel.FedAvg(LOCAL), federation(most=14), net)
    run.save(tmp_path / "run", 1)
    result = umbel.load(tmp_path / "run", net)
    done = result.export("peft", out=tmp_path / "out")
    assert done.largest_difference < 1e-5
    theirs = peft.PeftModel.from_pretrained(recipe.base(2), done.file).eval()
    x = unequal(5, 8, 14)
    with torch.no_grad():
        torch.testing.assert_close(theirs(x), result.model(0)(x))


@pytest.mark.thorough
def test_a_model_of_the_next_token_is_exported(tmp_path: Path) -> None:
    net = umbel.Net(adapted(made("GPT2LMHeadModel"), lora("CAUSAL_LM", **OF_GPT2), pad=0))
    rng = np.random.default_rng(0)
    x = rng.integers(1, IDS, (3, 6, 5))
    clients = [(each, np.roll(each, -1, axis=1)) for each in x]
    run = umbel.Run(
        umbel.FedAvg(LOCAL), umbel.Federation.from_arrays(clients, num_classes=IDS), net
    )
    run.save(tmp_path / "run", 1)
    done = umbel.load(tmp_path / "run", net).export("torch", out=tmp_path / "out")
    assert done.largest_difference < 1e-5


def test_what_has_no_adapters_is_refused(tmp_path: Path) -> None:
    result = make_run(federation=blobs()).save(tmp_path / "mine", 1)
    with pytest.raises(umbel.UsageError, match="to: 'peft' needs one network with adapters"):
        result.export("peft", client=0)


def test_what_is_trained_beside_the_adapters_is_named(tmp_path: Path) -> None:
    net = umbel.Net(NET.build, trained=["*lora_*", "*classifier*default*", "*LayerNorm.bias"])
    run = umbel.Run(umbel.FedAvg(LOCAL), federation(), net)
    run.save(tmp_path / "run", 1)
    result = umbel.load(tmp_path / "run", net)
    with pytest.raises(umbel.UsageError, match=r"no place for .*LayerNorm\.bias"):
        result.export("peft")
