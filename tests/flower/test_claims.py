"""What a client claims is held to what its node said at first, and what it sends to a length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, RecordDict

from tests.algorithms.test_contract import LOCAL
from tests.flower.attacks import with_array, with_config
from tests.flower.small import SMALL, clients, site
from tests.flower.test_hostile import hostile
from umbel.algorithms import FedAvg
from umbel.client.work import Evaluation, LocalTraining, PersonalEvaluation
from umbel.engines.replies.claims import held
from umbel.flow import Replies, Request
from umbel.flower import Settings, serve
from umbel.flower.exchange import HELLO, WORK
from umbel.flower.memory import memorise
from umbel.run.records import Record

MANY = 10**9

EXPERIMENT = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=4)


def claiming(content: RecordDict) -> RecordDict:
    """Every client at this node has very many examples."""
    many = [MANY] * len(content.config_records["site"]["clients"])  # type: ignore[arg-type]
    return with_config(content, "site", train=many, test=many)


def lying(content: RecordDict) -> RecordDict:
    """As many examples in answers, all of them right, and the largest updates that are usable."""
    columns = content.array_records["columns"]
    lies = {
        "num_examples": np.array([MANY], dtype=np.int64),
        "right": np.array([float(MANY)]),
        "loss": np.array([1.0]),
    }
    for name, values in lies.items():
        if name in columns:
            content = with_array(content, "columns", name, data=values.tobytes())
    if "update" in columns:
        update: Array = columns["update"]
        size = len(update.data) // 4
        data = np.full(size, 9999.0, dtype=np.float32).tobytes()
        content = with_array(content, "columns", "update", data=data)
    return content


def served(folder: Path, greets: bool) -> list[Record]:
    """A run of four clients, one of whom lies in its answers, and perhaps in its greeting."""
    grid = site(folder, *(clients([name]) for name in "abcd"), of=EXPERIMENT)
    liar = hostile(grid.apps[1], WORK, lying)
    grid.apps = {**grid.apps, 1: hostile(liar, HELLO, claiming) if greets else liar}
    settings = Settings(4, patience=5, runs_dir=str(folder / "runs"))
    return serve(grid, EXPERIMENT, settings).records()


@pytest.mark.parametrize("greets", [False, True])
def test_one_client_that_claims_very_many_examples_does_not_end_a_run(
    greets: bool, tmp_path: Path
) -> None:
    records = served(tmp_path, greets)
    assert len(records) == 4
    assert not any(record.refused for record in records)
    assert all("shortened to" in record.bounded[0] for record in records)


def test_claims_are_held_to_the_roll_in_training_and_evaluation(tmp_path: Path) -> None:
    *_, last = served(tmp_path, greets=False)
    said = "as its node said when the run began"
    assert f"num_examples: 1,000,000,000 counted as 17, {said}" in last.bounded[0]
    assert f"evaluation: num_examples: 1,000,000,000 counted as 3, {said}" in last.bounded[0]
    assert last.accuracy is not None
    assert last.weighted_accuracy == pytest.approx(last.accuracy)  # all have as many examples


def test_sums_over_fewer_examples_keep_their_means() -> None:
    found = torch.tensor([0, 2])
    count = torch.tensor([100, 5])
    sums = {"loss": torch.tensor([50.0, 1.0]).double(), "right": torch.tensor([80.0, 4.0]).double()}
    request = Request(Evaluation(), found, [0, 0])
    sizes = {"test": np.array([10, 10, 10])}
    replies, whys = held(request, Replies(found, {**sums, "num_examples": count}), sizes)
    assert replies.columns["num_examples"].tolist() == [10, 5]
    assert replies.columns["loss"].tolist() == [5.0, 1.0]
    assert replies.columns["right"].tolist() == [8.0, 4.0]
    assert list(whys) == [0]
    several = {name: values[:, None].repeat(1, 3) for name, values in sums.items()}
    request = Request(PersonalEvaluation("test"), found, [0, 0], {"shares": torch.zeros(3, 1)})
    replies, _ = held(request, Replies(found, {**several, "num_examples": count}), sizes)
    assert replies.columns["loss"].tolist() == [[5.0] * 3, [1.0] * 3]
    untold = Request(LocalTraining(), found, [0, 0])
    assert held(untold, replies, sizes) == (replies, {})


def test_nobody_else_may_read_what_clients_keep(tmp_path: Path) -> None:
    file = tmp_path / "memory.safetensors"
    memorise(file, {"a": torch.zeros(3)})
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    memorise(file, {"b": torch.zeros(3)})
    assert file.stat().st_mode & 0o777 == 0o600
