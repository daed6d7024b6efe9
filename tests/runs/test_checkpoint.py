from __future__ import annotations

import math
import os
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
from umbel.algorithms.sharing import SharingState
from umbel.checks import UsageError
from umbel.folder import checkpoint, tensor_files
from umbel.folder.checkpoint_parts import LARGE_BYTES, SPARE
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


def test_what_is_read_begins_in_memory_where_tensors_do(tmp_path: Path) -> None:
    first = features(1, 2)
    for size in (1, 3, 7, 50):  # of what stands before it in the file
        path = tmp_path / str(size) / "checkpoint.safetensors"
        path.parent.mkdir()
        saved = replace(with_features(*first), models=torch.ones(1, size))
        checkpoint.save(path, saved, 7)
        state, _ = checkpoint.load(path, with_features(*features(0, 0)))
        tensors = [value for value in vars(state).values() if isinstance(value, torch.Tensor)]
        assert all(tensor.data_ptr() % 64 == 0 for tensor in (*tensors, *state.features))


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


def with_a_part_kept(state: State) -> State:
    return SharingState(state.models, state.labels, (state,), torch.ones(3, 2))


@dataclass(frozen=True)
class Around(State):
    """The state of somebody's own method around others."""

    states_in: ClassVar[str] = "halves"

    halves: tuple[State, ...]
    seen: tuple[int, ...]


def in_own_halves(state: State) -> State:
    return Around(state.models, state.labels, (state, state), (1, 2))


@pytest.mark.parametrize(
    "within", [lambda state: state, among_rivals, with_a_part_kept, in_own_halves]
)
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


def test_a_tuple_that_lacks_one_of_its_tensors_is_refused(file: Path) -> None:
    header = {
        "format": 4,
        "kind": "Remembering",
        "next_round": 8,
        "numbers": {"counts": []},
        "lists": [],
    }
    tensors = {"models": torch.zeros(1, 5), "labels": torch.zeros(3, dtype=torch.long)}
    tensors |= {"past.0": torch.zeros(2), "past.2": torch.zeros(2)}
    tensor_files.write(file, tensors, header)
    with pytest.raises(UsageError, match=r"not a readable checkpoint: 'past\.1'"):
        checkpoint.load(file, remembering(3))


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
    return {path.name: path.stat().st_ino for path in folder.iterdir() if path.name != SPARE}


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


def test_a_part_is_written_over_the_one_that_was_replaced_before(file: Path) -> None:
    blocks = [features(n)[0] for n in range(4)]
    parts = checkpoint.save(file, with_features(blocks[0]), 8)
    (outdated,) = written(file).values()
    parts = checkpoint.save(file, with_features(blocks[1]), 9, before=parts)
    assert (spare := file.with_name("checkpoint-parts") / SPARE).stat().st_ino == outdated
    parts = checkpoint.save(file, with_features(blocks[2]), 10, before=parts)
    assert [*written(file).values()] == [outdated]
    assert spare.stat().st_ino != outdated
    state, number = checkpoint.load(file, with_features(*features(0)))
    assert (number, state.features[0].unique().tolist()) == (10, [2])
    checkpoint.tidy(file)
    assert not spare.exists()
    checkpoint.save(file, with_features(blocks[3]), 11, before=parts)
    assert checkpoint.load(file, with_features(*features(0)))[0].features[0].unique().item() == 3


@pytest.mark.parametrize(
    "hindrance", ["link", "symlink", "read-only", "shape", "type", "damage", "folder"]
)
def test_a_part_has_a_file_of_its_own_if_it_does_not_fit_the_one_before(
    file: Path, hindrance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = checkpoint.save(file, with_features(*features(1)), 8)
    checkpoint.save(file, with_features(*features(2)), 9, before=parts)
    spare, (block,) = file.with_name("checkpoint-parts") / SPARE, features(3)
    copy = file.with_name("copy")
    match hindrance:
        case "link":  # as in a copy of the folder by links
            copy.hardlink_to(spare)
            before = copy.read_bytes()
        case "symlink":  # to a file of another run
            spare.replace(copy)
            spare.symlink_to(copy)
            before = copy.read_bytes()
        case "read-only":
            spare.chmod(0o400)
            monkeypatch.setattr(os, "access", lambda *_: False)
        case "shape":
            block = block.reshape(2, -1)
        case "type":
            block = block.to(torch.int32)
        case "damage":
            spare.write_bytes(spare.read_bytes()[:-8])
        case "folder":
            spare.unlink()
            spare.mkdir()
    checkpoint.save(file, with_features(block), 10)
    state, _ = checkpoint.load(file, with_features(*features(0)))
    assert torch.equal(state.features[0], block)
    assert "link" not in hindrance or copy.read_bytes() == before


def test_parts_that_are_links_to_those_of_another_run_leave_them_as_they_are(file: Path) -> None:
    checkpoint.save(file, with_features(*features(1)), 8)
    folder = file.with_name("checkpoint-parts")
    (part,) = folder.iterdir()
    theirs = part.replace(file.with_name("theirs"))
    before = theirs.read_bytes()
    part.symlink_to(theirs)
    parts = checkpoint.save(file, with_features(*features(2)), 9)
    for value in (3, 4):
        parts = checkpoint.save(file, with_features(*features(value)), 8 + value, before=parts)
    assert theirs.read_bytes() == before
    assert not any(each.is_symlink() for each in folder.iterdir())
    assert checkpoint.load(file, with_features(*features(0)))[0].features[0].unique().item() == 4


def test_small_tensors_of_a_tuple_are_in_the_file_itself(file: Path) -> None:
    checkpoint.save(file, with_features(*features(1, 2)), 8)
    checkpoint.save(file, with_features(torch.ones(4), torch.zeros(4)), 9)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    state, _ = checkpoint.load(file, with_features(*features(0, 0)))
    assert [block.tolist() for block in state.features] == [[1] * 4, [0] * 4]


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


def test_a_size_reads_back_as_an_equal_tuple(file: Path) -> None:
    state = Noting(torch.zeros(1, 2), torch.zeros(3, dtype=torch.long), torch.ones(2, 3).shape)
    assert can_hold(state.notes)
    checkpoint.save(file, state, 1)
    assert checkpoint.load(file, state)[0].notes == (2, 3)


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


def test_of_what_is_among_the_parts_only_files_of_a_checkpoint_are_removed(file: Path) -> None:
    checkpoint.save(file, with_features(*features(1, 2)), 8)
    parts = file.with_name("checkpoint-parts")
    before = sorted(parts.iterdir())
    for name in ("0.safetensors", "0.partial"):  # of a process that was killed
        (parts / name).write_bytes(b"half")
    (parts / ".0.safetensors.0a1b2c3d.partial").mkdir()
    theirs = [parts / name for name in ("x.partial", "x.safetensors", "x.txt")]
    for folder in theirs[:2]:
        folder.mkdir()
    theirs[2].touch()
    checkpoint.tidy(file)
    assert sorted(parts.iterdir()) == sorted([*before, *theirs])
    checkpoint.save(file, STATE, 9)
    assert sorted(parts.iterdir()) == theirs


def test_tensors_that_torch_does_not_count_changes_of_are_always_written(file: Path) -> None:
    with torch.inference_mode():
        (block,) = features(1)
        parts = checkpoint.save(file, with_features(block), 8)
        block.add_(1)
        checkpoint.save(file, with_features(block), 9, before=parts)
    state, _ = checkpoint.load(file, with_features(*features(0)))
    assert state.features[0].unique().tolist() == [2]


@dataclass(frozen=True)
class Wrapped(State):
    """The state of a method around another one."""

    states_in: ClassVar[str] = "inner"

    inner: tuple[State, ...]
    velocity: torch.Tensor


@dataclass(frozen=True)
class Several(State):
    features: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class NotingAround(State):
    states_in: ClassVar[str] = "inner"

    notes: Any = None
    inner: tuple[State, ...] = ()


def wrapped(inner: State, velocity: float) -> Wrapped:
    return Wrapped(inner.models, inner.labels, (inner,), torch.full((2,), velocity))


def test_a_state_within_another_of_its_own_kind_is_the_inner_one(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.safetensors"
    state = wrapped(wrapped(STATE, 1.0), 2.0)
    checkpoint.save(file, state, 3)
    assert_same_state(checkpoint.load(file, wrapped(wrapped(EMPTY, 0.0), 0.0))[0], state)


def test_lists_of_a_state_are_not_those_of_the_one_within(tmp_path: Path) -> None:
    file, models, labels = tmp_path / "c.safetensors", torch.zeros(1, 2), torch.zeros(3).long()
    inner = Noting(models, labels, notes=(1, 2))
    checkpoint.save(file, NotingAround(models, labels, [3], (inner,)), 1)
    found = checkpoint.load(file, NotingAround(models, labels, None, (Noting(models, labels),)))[0]
    assert (found.notes, found.inner[0].notes) == ([3], (1, 2))


def test_a_state_within_another_may_have_become_one_within_itself(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.safetensors"
    rivals = RestartsState(EMPTY.models, EMPTY.labels, (EMPTY, EMPTY))
    for state in (wrapped(STATE, 1.0), wrapped(rivals, 1.0)):
        checkpoint.save(file, state, 3)
        assert_same_state(checkpoint.load(file, wrapped(rivals, 0.0))[0], state)


@pytest.mark.parametrize("large", [False, True])
def test_what_torch_conjugates_or_negates_on_reading_is_written_so(
    tmp_path: Path, large: bool
) -> None:
    value = torch.full((LARGE_BYTES if large else 2,), 1 + 2j).conj()
    state = Wrapped(EMPTY.models, EMPTY.labels, (EMPTY,), value.imag)
    several = Several(EMPTY.models, EMPTY.labels, (value, value.imag))
    for each in (state, several):
        file = tmp_path / "checkpoint.safetensors"
        checkpoint.save(file, each, 1)
        assert_same_state(checkpoint.load(file, each)[0], each)
