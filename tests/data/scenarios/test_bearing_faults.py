"""Bearing faults: groups, windows and files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from umbel.checks import UsageError
from umbel.data.bearings import RECORDINGS, windows
from umbel.data.scenarios.bearing_faults import PAIRS, BearingFaults
from umbel.data.sources import Sources

LENGTH = 1200

SMALL = BearingFaults(clients=6, window=64, examples=(10, 20))


def ramp(label: int, speed: int) -> np.ndarray:
    """A signal that tells of each sample whose it is and where."""
    return np.arange(LENGTH) + 10_000 * (2 * label + speed)


def write_npz(folder: Path, without: str = "") -> Sources:
    names = [f"{condition}__{rpm}rpm" for condition in RECORDINGS for rpm in (1797, 1772)]
    signals = {n: ramp(*divmod(i, 2)).astype(np.float32) for i, n in enumerate(names)}
    signals.pop(without, None)
    (folder / "cwru_bearing").mkdir()
    np.savez(folder / "cwru_bearing" / "drive_end_12k.npz", **signals)  # type: ignore[arg-type]
    return Sources(folder, folder / "cache")


def write_mat(folder: Path, without: int = 0) -> Sources:
    deep = folder / "cwru_bearing" / "12k"
    deep.mkdir(parents=True)
    for label, numbers in enumerate(RECORDINGS.values()):
        for speed, number in enumerate(numbers):
            if number != without:
                signal = ramp(label, speed)[:, None].astype(float)
                name = f"X{number:03}"
                variables = {f"{name}_DE_time": signal, f"{name}_FE_time": -signal}
                savemat(deep / f"{number}.mat", variables)
    savemat(deep / "97.mat", {"X097_DE_time": np.zeros((9, 1))})  # a sound bearing
    return Sources(folder, folder / "cache")


@pytest.mark.parametrize("write", [write_npz, write_mat])
def test_recordings_are_cut_into_windows_that_do_not_overlap(
    write: Callable[[Path], Sources], tmp_path: Path
) -> None:
    arrays = windows(write(tmp_path), 100)
    assert arrays.x.shape == (24 * 12, 1, 100)
    assert np.bincount(arrays.y).tolist() == [24] * 12
    assert len(np.unique(arrays.x)) == arrays.x.size
    for row in (0, 13, 287):
        x, label = arrays.x[row, 0], int(arrays.y[row])
        assert int(x[0]) // 20_000 == label
        assert x.tolist() == list(range(int(x[0]), int(x[0]) + 100))
    assert windows(Sources(tmp_path, tmp_path), 500).x.shape == (48, 1, 500)  # the rest is left


def test_groups_hold_the_papers_pairs_of_faults(tmp_path: Path) -> None:
    sources = write_npz(tmp_path)
    federation = replace(SMALL, clients=12).build(0, sources)
    assert federation.groups is not None
    assert federation.groups.tolist() == np.repeat(range(6), 2).tolist()
    for client, group in enumerate(federation.groups):
        assert set(federation.train.of(client)[1].tolist()) == set(PAIRS[group])
    assert sorted(label for pair in PAIRS for label in pair) == list(range(12))
    everything = torch.cat([federation.train.x, federation.test.x])
    assert len(np.unique(everything)) == everything.numel()  # each sample is somewhere once
    assert federation.num_classes == 12
    assert federation.input_shape == (1, 64)
    again, other = SMALL.build(1, sources), SMALL.build(2, sources)
    assert torch.equal(again.train.x, SMALL.build(1, sources).train.x)
    assert not torch.equal(again.train.x, other.train.x)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="read from the folder cwru_bearing of a data directory"):
        SMALL.build(0, Sources(None, tmp_path))
    with pytest.raises(UsageError, match=r"neither the file drive_end_12k\.npz nor .* X118_DE_t"):
        SMALL.build(0, Sources(tmp_path, tmp_path))
    for part in ("npz", "mat", "bad"):
        (tmp_path / part).mkdir()
    with pytest.raises(UsageError, match=r"drive_end_12k\.npz: lacks IR_7__1772rpm$"):
        SMALL.build(0, write_npz(tmp_path / "npz", without="IR_7__1772rpm"))
    with pytest.raises(UsageError, match=r"missing are the variables X106_DE_time$"):
        SMALL.build(0, write_mat(tmp_path / "mat", without=106))
    sources = write_mat(tmp_path / "bad")
    (tmp_path / "bad" / "cwru_bearing" / "118.mat").write_bytes(b"no matrix")
    with pytest.raises(UsageError, match=r"118\.mat: not a MATLAB file"):
        SMALL.build(0, sources)


@pytest.mark.parametrize(
    "change", [{"clients": 5}, {"window": 7}, {"examples": (0,)}, {"test_fraction": 1.0}]
)
def test_settings_out_of_range_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(change))}: .* is not"):
        replace(SMALL, **change)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_the_recordings_make_48_clients_in_six_groups(real_data: Sources) -> None:
    assert real_data.data_dir is not None
    if not (real_data.data_dir / "cwru_bearing").is_dir():
        pytest.skip("the data directory has no folder cwru_bearing")
    federation = BearingFaults().build(0, real_data)
    assert federation.groups is not None
    assert np.bincount(federation.groups).tolist() == [8] * 6
    sizes = federation.train.sizes + federation.test.sizes
    assert 100 <= sizes.min() <= sizes.max() <= 300
    np.testing.assert_allclose(federation.test.sizes / sizes, 0.15, atol=0.005)
    whole = windows(real_data, 256)
    assert np.bincount(whole.y).min() > 940
    x = whole.images(np.arange(len(whole.y)))
    spread, centre = float(x.std()), float(x.mean())
    held = federation.train.of(0)[0].numpy() * spread + centre
    mine = x[np.isin(whole.y, PAIRS[0])]
    distance = np.abs(held[:5, None, 0] - mine[None, :, 0]).max(-1).min(-1)
    assert distance.max() < 1e-5
