from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from umbel.algorithms.base import State
from umbel.algorithms.flacc import FLACCState
from umbel.checks import UsageError
from umbel.runs import checkpoint

STATE = FLACCState(
    models=torch.randn(2, 5, generator=torch.manual_seed(0)),
    labels=torch.tensor([0, 0, 1]),
    pairs=torch.zeros(0, 2, dtype=torch.long),
    similarity=torch.tensor([0.1, math.pi], dtype=torch.double),
    seen=torch.tensor([3]),
    last_merge=4,
    separated=True,
    merges=2,
    best_cross=math.nan,
)

EMPTY = FLACCState(
    torch.zeros(1, 5),
    torch.zeros(3, dtype=torch.long),
    torch.zeros(0, 2, dtype=torch.long),
    torch.zeros(0).double(),
    torch.zeros(0, dtype=torch.long),
    -1,
    False,
    0,
    0.0,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.safetensors"
    checkpoint.save(path, STATE, 7)
    return path


def test_a_state_reads_back_bit_for_bit(file: Path) -> None:
    state, next_round = checkpoint.load(file, EMPTY)
    assert next_round == 7
    for member in fields(STATE):
        expected, found = getattr(STATE, member.name), getattr(state, member.name)
        if isinstance(expected, torch.Tensor):
            assert found.dtype == expected.dtype
            assert torch.equal(found, expected)
        elif member.name == "best_cross":
            assert math.isnan(found)
        else:
            assert found == expected
            assert type(found) is type(expected)


def test_saving_replaces_the_file_and_leaves_nothing_beside(file: Path) -> None:
    checkpoint.save(file, replace(STATE, merges=0), 8)
    assert checkpoint.load(file, EMPTY)[1] == 8
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_views_and_repeated_rows_are_saved_for_what_they_hold(file: Path) -> None:
    table = torch.arange(6.0).view(2, 3)
    state = State(table.T.expand(3, 2), torch.zeros(1, dtype=torch.long).expand(4))
    checkpoint.save(file, state, 0)
    found, _ = checkpoint.load(file, State(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long)))
    assert torch.equal(found.models, state.models)


@pytest.mark.parametrize("damage", ["cut", "flip", "garbage", "empty", "foreign"])
def test_a_damaged_checkpoint_is_refused(file: Path, damage: str) -> None:
    content = bytearray(file.read_bytes())
    match damage:
        case "cut":
            content = content[:-9]
        case "flip":
            content[-3] ^= 64
        case "garbage":
            content = bytearray(b"\xff" * 100)
        case "empty":
            content = bytearray()
        case "foreign":
            from safetensors.torch import save

            content = bytearray(save({"models": torch.zeros(2)}))
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"checkpoint\.safetensors: (not a|damaged|a checkpoint)"):
        checkpoint.load(file, EMPTY)


def test_the_state_of_another_method_is_refused(file: Path) -> None:
    other = State(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))
    with pytest.raises(UsageError, match="of FLACCState, and format 3 of State is needed"):
        checkpoint.load(file, other)


def test_a_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.safetensors: can't be read: No such file"):
        checkpoint.load(tmp_path / "none.safetensors", EMPTY)


def test_fields_may_share_their_memory(tmp_path: Path) -> None:
    models = torch.arange(6.0).reshape(2, 3)
    state = replace(EMPTY, models=models[:1], similarity=models[1])
    checkpoint.save(tmp_path / "c.safetensors", state, 1)
    found, _ = checkpoint.load(tmp_path / "c.safetensors", EMPTY)
    assert found.models.tolist() == [[0.0, 1.0, 2.0]]
    assert found.similarity.tolist() == [3.0, 4.0, 5.0]
