"""Wrists as clients: their windows, what they are summed up as, and how few there may be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import umbel
from umbel.checks import UsageError
from umbel.data.scenarios.watch import Watch, summary
from umbel.data.sources import Sources

RNG = np.random.default_rng(0)


def write(folder: Path, names: tuple[str, ...] = ("p1-left", "p1-right", "p2-left")) -> Sources:
    """Seven recordings a client of five windows each in either half; values count windows."""
    (folder / "natural" / "watch").mkdir(parents=True)
    y = np.repeat(np.arange(7), 5)
    for name in names:
        numbers = np.arange(35.0)[:, None, None]
        x, x_test = (RNG.normal(0, 0.1, (35, 20, 6)) + numbers + add for add in (0, 100))
        file = folder / "natural" / "watch" / f"{name}.npz"
        np.savez(
            file,
            x=x.astype(np.float32),
            y=y,
            recording=y + 7,
            x_test=x_test.astype(np.float32),
            y_test=y,
        )
    return Sources(folder, folder / "cache")


def test_windows_are_summed_up_as_numpy_does() -> None:
    window = RNG.normal(1, 2, (1, 50, 6)).astype(np.float32)
    window[..., 5] = 3.0  # a channel that stands still is like no other
    (found,) = summary(window)
    channels = window[0].T
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = np.corrcoef(channels)
    expected = [
        *channels.mean(1),
        *channels.std(1),
        *np.abs(channels[:, 1:] - channels[:, :-1]).mean(1),
        *(0.0 if b == 5 else correlations[a, b] for a in range(6) for b in range(a + 1, 6)),
    ]
    assert len(expected) == 33
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_persons_and_wrists_are_known(tmp_path: Path) -> None:
    federation = Watch().build(0, write(tmp_path))
    assert federation.names == ("p1-left", "p1-right", "p2-left")
    assert federation.attributes == {
        "person": ("p1", "p1", "p2"),
        "wrist": ("left", "right", "left"),
    }
    assert federation.groups is None
    assert (federation.input_shape, federation.num_classes) == ((33,), 7)
    assert Watch(features="raw").build(0, Sources(tmp_path, tmp_path)).input_shape == (6, 20)


def test_validation_takes_the_last_windows_of_each_recording(tmp_path: Path) -> None:
    scenario = Watch(features="raw", validation_fraction=0.4)
    federation = scenario.build(0, write(tmp_path))
    assert federation.validation is not None
    parts = (federation.train, federation.validation, federation.test)
    assert [part.sizes.tolist() for part in parts] == [[21] * 3, [14] * 3, [35] * 3]
    for label in range(7):
        train, validation = (
            part.of(0)[0][part.of(0)[1] == label].mean((1, 2)) for part in parts[:2]
        )
        assert train.max() < validation.min()


def test_few_windows_of_each_class_are_drawn_by_the_seed(tmp_path: Path) -> None:
    sources = write(tmp_path)
    scenario = Watch(features="raw", windows_per_class=2, validation_per_class=1)
    scenario = replace(scenario, validation_fraction=0.4)
    one, again, other = (scenario.build(seed, sources) for seed in (0, 0, 1))
    assert one.train.of(1)[1].tolist() == [label for label in range(7) for _ in range(2)]
    assert one.validation is not None
    assert one.validation.of(1)[1].tolist() == list(range(7))
    assert torch.equal(one.train.x, again.train.x)
    assert not torch.equal(one.train.x, other.train.x)


def test_inputs_are_scaled_by_training_windows(tmp_path: Path) -> None:
    federation = Watch(features="raw").build(0, write(tmp_path))
    x = federation.train.x
    torch.testing.assert_close(x.mean((0, 2)), torch.zeros(6), atol=1e-4, rtol=0)
    torch.testing.assert_close(x.std((0, 2), correction=0), torch.ones(6), atol=1e-3, rtol=0)


def test_what_is_no_watch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="set UMBEL_DATA_DIR or --data-dir"):
        Watch().build(0, Sources(None, tmp_path))
    with pytest.raises(UsageError, match="'natural/watch' is not in the data directory"):
        Watch().build(0, Sources(tmp_path, tmp_path))
    sources = write(tmp_path, ("left",))
    with pytest.raises(UsageError, match="'left' is not of the form PERSON-WRIST"):
        Watch().build(0, sources)
    file = tmp_path / "natural" / "watch" / "left.npz"
    np.savez(file.with_name("p-left.npz"), x=np.zeros((3, 5, 6)))
    file.unlink()
    with pytest.raises(UsageError, match="lacks recording, x_test, y, y_test"):
        Watch().build(0, sources)


@pytest.mark.thorough
def test_the_real_windows_are_there(real_data: Sources) -> None:
    if real_data.data_dir is None or not (real_data.data_dir / "natural" / "watch").is_dir():
        pytest.skip("the data directory has no natural/watch")
    federation = umbel.scenario("watch", windows_per_class=4)
    assert federation.num_clients == 20
    assert len(set(federation.attributes["person"])) == 10
    assert len(set(federation.attributes["wrist"])) == 2
    assert bool(federation.train.x.isfinite().all())
