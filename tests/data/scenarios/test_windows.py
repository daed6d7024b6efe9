"""Recordings are split in time, then cut: no step is in windows of two parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import umbel
from umbel.checks import UsageError
from umbel.data.scenarios.windows import RecordedWindows
from umbel.data.sources import Sources

PLAIN = RecordedWindows(length=4, stride=2, test_fraction=0.25, scale=False)


def build(folder: Path, scenario: RecordedWindows = PLAIN) -> umbel.Federation:
    return replace(scenario, path=str(folder)).build(0, Sources(None, folder))


def write(folder: Path, name: str, x: Any, y: Any, **more: Any) -> None:
    np.savez(folder / f"{name}.npz", x=np.asarray(x), y=np.asarray(y), **more)


def test_windows_have_their_length_stride_and_most_common_label(tmp_path: Path) -> None:
    x = np.stack([np.arange(16.0), -np.arange(16.0)], axis=1)
    write(tmp_path, "one", x, [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0, 0, 0, 0])
    federation = build(tmp_path)
    assert federation.names == ("one",)
    assert federation.input_shape == (2, 4)
    assert federation.train.x[:, 0, 0].tolist() == [0, 2, 4, 6, 8]  # of the first 12 steps
    assert federation.train.x[1].tolist() == [[2, 3, 4, 5], [-2, -3, -4, -5]]
    assert federation.train.y.tolist() == [0, 1, 1, 2, 2]
    assert federation.test.x[:, 0].tolist() == [[12, 13, 14, 15]]
    last = build(tmp_path, replace(PLAIN, label="last"))
    assert last.train.y.tolist() == [1, 1, 2, 2, 2]


def test_no_window_straddles_two_parts_or_two_recordings(tmp_path: Path) -> None:
    recording = np.repeat([5, 1], [40, 23])
    steps = np.arange(63.0)
    write(tmp_path, "one", steps, recording == 5, recording=recording)
    federation = build(tmp_path, replace(PLAIN, stride=1, validation_fraction=0.25))
    assert federation.validation is not None
    parts = (federation.train, federation.validation, federation.test)
    seen = [set(part.x.flatten().tolist()) for part in parts]
    assert not seen[0] & seen[1]
    assert not seen[1] & seen[2]
    for part in parts:
        rows = recording[part.x[:, 0].long().numpy()]
        assert bool((rows == rows[:, :1]).all())
        assert (part.y.numpy() == (rows[:, 0] == 5)).all()
        assert len(set(rows[:, 0])) == 2
    assert max(seen[0] & set(steps[:40])) < min(seen[1] & set(steps[:40]))
    assert max(seen[1] & set(steps[:40])) < min(seen[2] & set(steps[:40]))


def test_one_label_or_number_may_stand_for_all_steps(tmp_path: Path) -> None:
    write(tmp_path, "calm", np.zeros((20, 3)), 0)
    write(tmp_path, "wild", np.ones((20, 3)), [1])
    federation = build(tmp_path)
    assert set(federation.train.of(0)[1].tolist()) == {0}
    assert set(federation.train.of(1)[1].tolist()) == {1}


def test_numbers_of_a_window_are_averaged(tmp_path: Path) -> None:
    write(tmp_path, "one", np.zeros(8), np.arange(8.0))
    federation = build(tmp_path, replace(PLAIN, test_fraction=0.0))
    assert federation.train.y.tolist() == [1.5, 3.5, 5.5]
    assert federation.num_classes is None


def test_channels_are_scaled_by_training_windows_only(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal([5.0, -3.0], [2.0, 0.1], (80, 2))
    write(tmp_path, "one", x, 0)
    scenario = replace(PLAIN, stride=4, scale=True)
    before = build(tmp_path, scenario).train.x
    torch.testing.assert_close(before.mean((0, 2)), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(before.std((0, 2), correction=0), torch.ones(2), atol=1e-4, rtol=0)
    x[60:] = 1e6
    write(tmp_path, "one", x, 0)
    assert torch.equal(build(tmp_path, scenario).train.x, before)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros(20)}, r"one.npz: lacks y"),
        ({"x": np.zeros((20, 2, 2)), "y": 0}, r"one.npz: x: \(20, 2, 2\) is not steps"),
        ({"x": np.zeros(20), "y": np.zeros(3)}, r"one.npz: y: \(3,\) is not one number, or one fo"),
        ({"x": np.full(20, np.nan), "y": 0}, r"one.npz: x: 'NaN or infinite' is not finite"),
        ({"x": np.array(["a"] * 20), "y": 0}, r"one.npz: x: '<U1' is not a type of numbers"),
        (
            {"x": np.zeros(4), "y": 0},
            r"one.npz: '0 training windows' is not enough: are recordings",
        ),
        (
            {"x": np.zeros(20), "y": 0, "recording": np.zeros(3)},
            r"one.npz: recording: \(3,\) is not",
        ),
        (
            {"x": np.zeros(20), "y": 0, "recording": np.full(20, np.nan)},
            r"one.npz: recording: 'NaN or infinite' is not finite",
        ),
    ],
)
def test_what_is_no_recording_is_refused(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "one.npz", **arrays)
    with pytest.raises(UsageError, match=message):
        build(tmp_path)


@pytest.mark.parametrize("scale", [True, False])
def test_recordings_of_different_channels_are_refused_with_the_file(
    tmp_path: Path, scale: bool
) -> None:
    for name, channels in (("a", 3), ("b", 3), ("c", 1)):
        write(tmp_path, name, np.zeros((20, channels)), 0)
    with pytest.raises(UsageError, match=r"c.npz: x: '1 channel' is not 3 channels, as a.npz has"):
        build(tmp_path, replace(PLAIN, scale=scale))


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no .npz files"):
        build(tmp_path)
    with pytest.raises(UsageError, match="gone: there is no such folder"):
        build(tmp_path / "gone")
    with pytest.raises(UsageError, match="length: 0 is not 1 or more"):
        RecordedWindows(length=0)
