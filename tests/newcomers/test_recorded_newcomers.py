"""Newcomers of a run of recordings are scaled as its own clients were."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import umbel
from umbel.data.channel_scale import ChannelScale

EXPERIMENT = """
rounds = 6
[scenario]
name = "windows"
path = "{path}"
length = 4
stride = 4
[model]
name = "linear"
[algorithm]
name = "oracle"
[algorithm.local]
lr = 0.5
epochs = 5
"""


def recording(turn: int, seed: int, shift: float = 100.0) -> tuple[np.ndarray, np.ndarray]:
    """A label a window of four steps, by the sign of its first channel, which a turn reverses."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 60)
    middle = (2 * y - 1) * turn * 3
    x = rng.normal(size=(60, 4, 2)) * 0.3
    x[:, :, 0] += middle[:, None]
    return (5 * x + shift).astype(np.float32), y


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    folder = tmp_path / "recordings"
    folder.mkdir()
    for number in range(6):
        x, y = recording(1 if number < 3 else -1, number)
        np.savez(folder / f"c{number}.npz", x=x.reshape(-1, 2), y=y.repeat(4))
    return folder


@pytest.fixture
def run(tmp_path: Path, recordings: Path) -> umbel.Result:
    file = tmp_path / "wins.toml"
    file.write_text(
        EXPERIMENT.format(path=recordings.as_posix()).replace(
            'name = "oracle"',
            'name = "fixed-clusters"\nclusters = [0, 0, 0, 1, 1, 1]',
        )
    )
    made = umbel.RunFolder.create(tmp_path / "run", umbel.read(file))
    for _ in umbel.execute(made):
        pass
    return umbel.load(tmp_path / "run")


def newcomers(folder: Path) -> Path:
    folder.mkdir()
    for name, turn in (("like0", 1), ("like5", -1)):
        x, y = recording(turn, 77)
        np.savez(folder / f"{name}.npz", x=x.swapaxes(1, 2), y=y)
    return folder


def test_windows_in_files_are_scaled_by_the_run(run: umbel.Result, tmp_path: Path) -> None:
    assert run.last.accuracy is not None
    assert run.last.accuracy > 0.95
    placed = run.assign(newcomers(tmp_path / "new"))
    assert placed.clusters == {"like0": run.clusters["c0"], "like5": run.clusters["c5"]}
    assert not placed.unlike


def test_recordings_that_were_scaled_by_their_own_are_scaled_by_the_run(
    run: umbel.Result, tmp_path: Path
) -> None:
    folder = tmp_path / "later"
    folder.mkdir()
    for name, turn in (("a", 1), ("b", -1)):
        x, y = recording(turn, 78, shift=160.0)
        x = np.concatenate([x - 60, x[:1] + 900])  # another scale of its own
        np.savez(folder / f"{name}.npz", x=x.reshape(-1, 2), y=np.append(y, 0).repeat(4))
    theirs, raw = (
        umbel.scenario("windows", path=str(folder), length=4, stride=4, scale=scaled)
        for scaled in (True, False)
    )
    kept = json.loads((run.folder.path / "encoding.json").read_text())["channels"]
    scale = ChannelScale(tuple(kept["mean"]), tuple(kept["deviation"]))
    assert isinstance(theirs.encoding, ChannelScale)
    assert theirs.encoding != scale
    torch.testing.assert_close(
        theirs.encoding.undone(theirs.train.x).float(), raw.train.x, rtol=1e-5, atol=1e-3
    )
    assert run.assign(theirs).clusters == {"a": run.clusters["c0"], "b": run.clusters["c5"]}


def test_exported_models_have_the_scale_beside_them(run: umbel.Result, tmp_path: Path) -> None:
    exported = run.export("torch", cluster=0, out=tmp_path / "m.pt2")
    assert exported.encoding is not None
    written = json.loads(exported.encoding.read_text())["channels"]
    assert len(written["mean"]) == len(written["deviation"]) == 2
    assert written["mean"] == pytest.approx([100, 100], abs=2)


@pytest.mark.parametrize("scaled", [True, False])
def test_saved_newcomers_are_what_they_were(
    run: umbel.Result, scaled: bool, tmp_path: Path
) -> None:
    made = windows_of(tmp_path / "later", scaled)
    made.save(tmp_path / "saved")
    assert umbel.scenario("folder", path=str(tmp_path / "saved")).encoding == made.encoding
    for newcomers in (made, tmp_path / "saved"):
        if scaled or newcomers is not made:
            found = run.assign(newcomers).clusters
            assert found == {"a": run.clusters["c0"], "b": run.clusters["c5"]}


def windows_of(folder: Path, scaled: bool) -> umbel.Federation:
    folder.mkdir()
    for name, turn in (("a", 1), ("b", -1)):
        x, y = recording(turn, 78)
        np.savez(folder / f"{name}.npz", x=x.reshape(-1, 2), y=y.repeat(4))
    return umbel.scenario("windows", path=str(folder), length=4, stride=4, scale=scaled)


def test_a_run_without_scale_takes_scaled_newcomers_as_they_were_recorded(
    recordings: Path, tmp_path: Path
) -> None:
    net = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 2)))
    raw = umbel.scenario("windows", path=str(recordings), length=4, stride=4, scale=False)
    plain = umbel.Run(umbel.FedAvg(), raw, net).save(tmp_path / "plain", 1)
    theirs = windows_of(tmp_path / "more", True)
    unscaled = plain.assign(windows_of(tmp_path / "raw", False)).scores
    torch.testing.assert_close(plain.assign(theirs).scores, unscaled, rtol=1e-3, atol=1e-3)
