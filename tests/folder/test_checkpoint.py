from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import torch

from tests.federations import setup
from umbel.algorithms import CFLGP
from umbel.algorithms.base import State
from umbel.algorithms.cfl_gp import CFLGPState
from umbel.algorithms.flacc import FLACCState
from umbel.algorithms.restarts import RestartsState
from umbel.checks import UsageError
from umbel.folder import checkpoint
from umbel.folder.checkpoint_parts import LARGE_BYTES
from umbel.run.state_fields import can_hold
from umbel.testing import assert_same_state

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
    with pytest.raises(
        UsageError, match=r"checkpoint\.safetensors: (not a|damaged|is a checkpoint)"
    ):
        checkpoint.load(file, EMPTY)


def test_the_state_of_another_method_is_refused(file: Path) -> None:
    other = State(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))
    with pytest.raises(UsageError, match="of FLACCState, but format 4 of State is needed"):
        checkpoint.load(file, other)


@dataclass(frozen=True)
class Remembering(State):
    """A state whose tuples may be of any length."""

    past: tuple[torch.Tensor, ...] = ()
    counts: tuple[Any, ...] = ()


def remembering(past: int, *counts: Any) -> Remembering:
    """A state with so many tensors in its tuple, the last one large, and these numbers."""
    blocks = [torch.full((2,), float(n)) for n in range(past - 1)]
    large = [torch.full((LARGE_BYTES // 4,), 0.5)] if past else []
    models, labels = torch.zeros(1, 5), torch.zeros(3, dtype=torch.long)
    return Remembering(models, labels, tuple(blocks + large), counts)


def among_rivals(state: State) -> State:
    return RestartsState(state.models.repeat(2, 1), state.labels, (state, state))


@pytest.mark.parametrize("within", [lambda state: state, among_rivals])
@pytest.mark.parametrize(
    ("first", "later"),
    [
        (remembering(0), remembering(3, 1, 2.5)),
        (remembering(1, 4), remembering(12, 4, 5)),
        (remembering(3, 1, 2), remembering(1, 7)),
        (remembering(3, 1, 2), remembering(0)),
        (remembering(2), remembering(2, (1, 2), (), True)),
    ],
    ids=["from nothing", "grown", "shrunk", "to nothing", "tuples of tuples"],
)
def test_tuples_read_back_as_long_as_they_were_saved(
    first: State, later: State, within: Callable[[State], State], file: Path
) -> None:
    checkpoint.save(file, within(later), 8)
    found, _ = checkpoint.load(file, within(first))
    assert_same_state(found, within(later))


def features(*values: float) -> tuple[torch.Tensor, ...]:
    """A tensor of this value for each, large enough for a file of its own."""
    return tuple(torch.full((LARGE_BYTES // 4,), value) for value in values)


def with_features(*blocks: torch.Tensor) -> CFLGPState:
    """A state that holds these, and nothing else that is large."""
    state = CFLGP(len(blocks)).init(setup(4, 2))
    return replace(state, features=blocks)


def written(file: Path) -> dict[str, int]:
    """The files beside a checkpoint, and which they are: a file that is replaced is another."""
    folder = file.with_name("checkpoint-parts")
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def test_only_what_has_changed_of_a_tuple_of_large_tensors_is_written(file: Path) -> None:
    one, two, three = features(1, 2, 3)
    parts = checkpoint.save(file, with_features(one, two), 8)
    before = written(file)
    assert len(before) == 2
    parts = checkpoint.save(file, with_features(one, three), 9, before=parts)
    after = written(file)
    assert len(after) == 2
    assert len(set(after.items()) & set(before.items())) == 1
    checkpoint.save(file, with_features(one.add_(4), three), 10, before=parts)
    assert len(set(written(file).items()) & set(after.items())) == 1
    state, number = checkpoint.load(file, with_features(*features(0, 0)))
    assert number == 10
    assert [block.unique().tolist() for block in state.features] == [[5], [3]]
    checkpoint.save(file, STATE, 11)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@dataclass(frozen=True)
class Noting(State):
    """A state with a field of several types in turn."""

    notes: Any = None


class Phase(StrEnum):
    WARM = "warm"


class Pair(NamedTuple):
    one: object
    other: object


@pytest.mark.parametrize("notes", [None, [], [1, [2]], (), (1, (2,)), {"a": [1]}, math.inf, "text"])
def test_a_field_reads_back_as_it_is_whatever_it_was_at_first(notes: object, file: Path) -> None:
    models, labels = torch.zeros(1, 2), torch.zeros(3, dtype=torch.long)
    checkpoint.save(file, Noting(models, labels, notes), 1)
    at_first: list[Any] = [None, [], (), {}]
    for first in at_first:
        found = checkpoint.load(file, Noting(models, labels, first))[0].notes
        assert (found, type(found)) == (notes, type(notes))


@pytest.mark.parametrize(
    "notes",
    [Phase.WARM, Pair(1, 2), Pair(torch.ones(1), torch.ones(1)), defaultdict(int), Counter("a")],
)
def test_what_would_read_back_as_another_type_is_not_held(notes: object) -> None:
    assert not can_hold(notes)
    assert not can_hold((notes,))
    assert not can_hold({"a": [notes]})


@pytest.mark.parametrize("damage", ["flip", "swap", "lost"])
def test_damage_beside_a_checkpoint_is_refused(file: Path, damage: str) -> None:
    checkpoint.save(file, with_features(*features(1, 2)), 8)
    one, other = file.with_name("checkpoint-parts").iterdir()
    match damage:
        case "flip":
            content = bytearray(one.read_bytes())
            content[-3] ^= 64
            one.write_bytes(content)
        case "swap":
            one.write_bytes(other.read_bytes())
        case "lost":
            one.unlink()
    with pytest.raises(UsageError, match=f"checkpoint-parts/{one.name}: (not a|can't be read)"):
        checkpoint.load(file, with_features(*features(0, 0)))


@dataclass(frozen=True)
class Wrapped(State):
    """The state of a method around another one."""

    states_in: ClassVar[str] = "inner"

    inner: tuple[State, ...]
    velocity: torch.Tensor


def wrapped(inner: State, velocity: float) -> Wrapped:
    return Wrapped(inner.models, inner.labels, (inner,), torch.full((2,), velocity))


def test_a_state_within_another_of_its_own_kind_is_the_inner_one(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.safetensors"
    state = wrapped(wrapped(STATE, 1.0), 2.0)
    checkpoint.save(file, state, 3)
    assert_same_state(checkpoint.load(file, wrapped(wrapped(EMPTY, 0.0), 0.0))[0], state)
