"""Newcomers whose texts became token ids must have them by the run's tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import umbel
from tests.networks.tiny import encoder, permute

pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")


class Bag(torch.nn.Module):
    """The mean over the tokens of a text of two numbers for each."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = torch.nn.Embedding(20, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean: torch.Tensor = self.scores(x).mean(1)
        return mean


def table(folder: Path, tokenizer: str | Path, **settings: Any) -> umbel.Federation:
    path = str(folder / "table.csv")
    made = {"path": path, "client": "who", "tokenizer": str(tokenizer), **settings}
    return umbel.scenario("table", **made)


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> umbel.Result:
    """A finished run whose tokenizer is in the folder `tiny` of the current one."""
    monkeypatch.chdir(tmp_path)
    encoder(tmp_path / "tiny")
    rows = [f"w{n % 4},the {word},{n % 2}" for n, word in enumerate(["maps", "fonts"] * 20)]
    (tmp_path / "table.csv").write_text("\n".join(["who,text,target", *rows]) + "\n")
    method = umbel.IFCA(num_clusters=2, local=umbel.LocalTraining(epochs=1))
    return umbel.Run(method, table(tmp_path, "tiny"), umbel.Net(Bag)).save("run", rounds=1)


def test_the_place_of_a_tokenizer_does_not_matter(result: umbel.Result, tmp_path: Path) -> None:
    expected = result.assign(table(tmp_path, "tiny")).clusters
    shutil.copytree("tiny", "copy")
    for place in ("./tiny", tmp_path / "tiny", "copy"):
        assert result.assign(table(tmp_path, place)).clusters == expected


def test_ids_of_another_tokenizer_are_refused(result: umbel.Result, tmp_path: Path) -> None:
    with pytest.raises(umbel.UsageError, match="have 9 token ids each, and the run's 4; give the"):
        result.assign(table(tmp_path, "tiny", text_tokens=9))
    permute(tmp_path / "tiny")
    for labelled in (True, False):
        with pytest.raises(
            umbel.UsageError, match=r"the tokenizer '.*/tiny' is not the run's: its"
        ):
            result.assign("table.csv", labelled=labelled)
    shutil.copytree("tiny", "copy")
    for place, said in (
        ("copy", "newcomers: the tokenizer of their texts is .*/copy, and the run's .*/tiny; give"),
        ("./tiny", "newcomers: the tokenizer in .*/tiny has changed since the run: bring the run"),
    ):
        with pytest.raises(umbel.UsageError, match=said):
            result.assign(table(tmp_path, place))
