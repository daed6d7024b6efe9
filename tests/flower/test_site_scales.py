"""Sites scale their channels, and the server, which does not know how, can't scale newcomers'."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import umbel
from tests.flower.small import site
from umbel.algorithms import IFCA
from umbel.client.work import LocalTraining
from umbel.data.channel_scale import ChannelScale
from umbel.data.federation import Federation
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.flower import Settings, serve
from umbel.networks import Linear
from umbel.result.run import Experiment

EXPERIMENT = Experiment(
    ROTATED_DIGITS,
    Linear(),
    IFCA(num_clusters=2, local=LocalTraining(epochs=1)),
    participation=1.0,
    rounds=1,
)
SCALE = ChannelScale((5000.0, -300.0), (200.0, 50.0))


def recordings(*names: str) -> Federation:
    """Clients with windows of two channels, which a scale of their own has scaled."""
    rng = np.random.default_rng(len(names))
    shards = [(rng.normal(size=(20, 2, 4)), rng.integers(0, 2, 20)) for _ in names]
    made = Federation.from_arrays(shards, names=names, num_classes=2)
    return replace(made, encoding=SCALE)


def served(folder: Path, experiment: Experiment = EXPERIMENT) -> umbel.Result:
    settings = Settings(2, patience=5.0, runs_dir=str(folder / "runs"))
    grid = site(folder, recordings("a", "b"), of=experiment)
    return umbel.load(serve(grid, experiment, settings).path)


def test_newcomers_with_a_scale_of_their_own_are_refused(tmp_path: Path) -> None:
    result, newcomers = served(tmp_path), recordings("c", "d", "e")
    newcomers.save(tmp_path / "new")
    for given in (newcomers, tmp_path / "new"):
        with pytest.raises(umbel.UsageError, match="does not know how sites scaled their channels"):
            result.assign(given)
    with pytest.raises(umbel.UsageError, match="without a scale of their own"):
        result.assign(tmp_path / "new", labelled=False)


def test_newcomers_that_are_scaled_as_the_sites_are_taken_as_they_are(tmp_path: Path) -> None:
    result, bare = served(tmp_path), replace(recordings("c", "d", "e"), encoding=None)
    bare.save(tmp_path / "new")
    scores = result.assign(bare).scores
    assert result.assign(tmp_path / "new").scores.shape == scores.shape == (3, 2)
