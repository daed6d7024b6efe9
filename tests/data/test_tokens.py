"""Columns of texts become token ids by the tokenizer beside an encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import umbel
from tests.networks.tiny import WORDS, change, encoder, permute
from umbel.data.tables.encoding import Encoding
from umbel.data.tables.newcomers import read_newcomers

pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")

ROWS = ["ann,the library,x", "ann,,y", "bob,fonts of unheard games,x", "bob,maps,y"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "table.csv").write_text("\n".join(["who,text,target", *ROWS]) + "\n")
    return encoder(tmp_path / "tiny")


def federation(folder: Path, **settings: Any) -> umbel.Federation:
    table = {"path": str(folder.parent / "table.csv"), "client": "who", "test_fraction": 0.0}
    return umbel.scenario("table", **{**table, "tokenizer": str(folder), **settings})


def as_json(encoding: Encoding) -> Any:
    return json.loads(json.dumps(encoding.plain()))


def ids(*words: str) -> list[int]:
    return [WORDS.index(word) for word in words]


def test_examples_are_token_ids_padded_to_the_longest_text(folder: Path) -> None:
    made = federation(folder)
    assert made.train.x.dtype == torch.int64
    assert made.input_shape == (6,)
    assert sorted(made.train.of(0)[0].tolist()) == sorted(
        [
            ids("[CLS]", "the", "library", "[SEP]", "[PAD]", "[PAD]"),
            ids("[CLS]", "[SEP]", *["[PAD]"] * 4),  # the text is missing
        ]
    )
    long = ids("[CLS]", "fonts", "of", "[UNK]", "games", "[SEP]")
    assert long in made.train.of(1)[0].tolist()
    assert made.num_classes == 2


def test_newcomers_have_as_many_tokens_as_the_clients_of_the_run(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = federation(folder)
    assert isinstance(made.encoding, Encoding)
    assert len(made.encoding.features) == 6
    file = tmp_path / "new.csv"
    file.write_text("who,text,target\neve,the,y\neve,the library of unheard unheard games maps,x\n")
    found = read_newcomers(file, Encoding.from_plain(as_json(made.encoding)), labelled=True)
    assert found.train.x[0].tolist() == ids("[CLS]", "the", "[SEP]", "[PAD]", "[PAD]", "[PAD]")
    assert found.input_shape == made.input_shape
    assert found.train.y.tolist() == [1, 0]
    assert caplog.messages == [f"{file}: column 'text': 1 of 2 texts are cut to the run's 6 tokens"]
    file.write_text("who,text,target\neve,fonts of unheard games,y\n")
    read_newcomers(file, made.encoding, labelled=True)
    assert len(caplog.messages) == 1


def encoding_of(folder: Path) -> Encoding:
    encoding = federation(folder).encoding
    assert isinstance(encoding, Encoding)
    return encoding


def test_newcomers_are_not_read_by_another_tokenizer_than_the_run_s(folder: Path) -> None:
    encoding = Encoding.from_plain(as_json(encoding_of(folder)))
    table = folder.parent / "table.csv"
    # What only pads or cuts texts changes no id, as the scenario pads and cuts them itself.
    change(folder / "tokenizer.json", padding=None)
    assert read_newcomers(table, encoding, labelled=True).num_clients == 2
    earlier = as_json(encoding)
    del earlier["tokenizer_digest"]
    for pad, changed in ((5, None), (0, permute)):
        change(folder / "config.json", pad_token_id=pad)
        if changed is not None:
            changed(folder)
        with pytest.raises(umbel.UsageError, match=r"tiny' is not the run's: its tokenizer\.json"):
            read_newcomers(table, encoding, labelled=True)
        assert read_newcomers(table, Encoding.from_plain(earlier), labelled=True).num_clients == 2


def test_texts_are_cut_and_padded_to_a_length_that_is_given(folder: Path) -> None:
    made = federation(folder, text_tokens=4)
    assert made.input_shape == (4,)
    assert ids("[CLS]", "fonts", "of", "[SEP]") in made.train.of(1)[0].tolist()
    assert federation(folder, text_tokens=9).input_shape == (9,)


def test_the_network_says_what_pads_where_the_tokenizer_does_not(folder: Path) -> None:
    file = folder / "tokenizer.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "padding": None}))
    assert federation(folder).train.x.min() == 0
    config = folder / "config.json"
    said = json.loads(config.read_text())
    config.write_text(json.dumps({**said, "pad_token_id": None}))
    assert federation(folder).train.x.min() == -1


def test_what_can_not_be_tokenised_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(umbel.UsageError, match="text_tokens: 0 is not 1 or more"):
        federation(folder, text_tokens=0)
    with pytest.raises(
        umbel.UsageError, match=r"scenario.tokenizer: .*nowhere.* is not an existing folder"
    ):
        federation(folder, tokenizer=str(tmp_path / "nowhere"))
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(umbel.UsageError, match=r"tokenizer\.json: is no tokenizer"):
        federation(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(umbel.UsageError, match=r"tokenizer\.json: can't be read"):
        federation(folder)
    table = folder.parent / "table.csv"
    table.write_text("\n".join(["who,text,target,note", *(f"{row},x" for row in ROWS)]) + "\n")
    with pytest.raises(umbel.UsageError, match=r"columns: .* is not one column of texts"):
        federation(folder, columns=("text", "note"))


@pytest.mark.parametrize(("of_network", "expected"), [(None, -1), (5, 5)])
def test_padding_is_what_the_network_takes_for_it(
    folder: Path, of_network: int | None, expected: int
) -> None:
    config = folder / "config.json"
    said = json.loads(config.read_text())
    config.write_text(json.dumps({**said, "pad_token_id": of_network}))
    text = [*ids("[CLS]", "the", "library", "[SEP]"), expected, expected]
    assert text in federation(folder).train.of(0)[0].tolist()
