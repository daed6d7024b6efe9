"""Channel state information: paths, normalisation, groups and files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from umbel.checks import UsageError
from umbel.client.objectives import REGRESSION
from umbel.data.channels import ENVIRONMENTS, Environment, generated
from umbel.data.scenarios.channel_state import ChannelState
from umbel.data.sources import Sources

SMALL = ChannelState(clients=4, examples=20, test_fraction=0.25)


def test_clients_restore_what_they_are_given_half_of_them_indoors(sources: Sources) -> None:
    federation = SMALL.build(0, sources)
    assert federation.groups is not None
    assert federation.groups.tolist() == [0, 0, 1, 1]
    assert federation.train.sizes.tolist() == [15] * 4
    assert federation.test.sizes.tolist() == [5] * 4
    assert federation.input_shape == (2, 32, 32)
    assert federation.num_outputs == 2048
    assert federation.num_classes is None
    assert torch.equal(federation.train.x, federation.train.y)
    assert torch.equal(federation.test.x, federation.test.y)
    again, other = SMALL.build(0, sources), SMALL.build(1, sources)
    assert torch.equal(federation.train.x, again.train.x)
    assert not torch.equal(federation.train.x, other.train.x)
    assert len(np.unique(federation.train.x[:, 0, 3, 12])) == 60  # each channel once


def test_the_mean_squared_error_is_the_normalised_error(sources: Sources) -> None:
    x, y = SMALL.build(0, sources).train.of(2)
    restored = 0.9 * x + 0.01
    expected = ((y - restored) ** 2).flatten(1).sum(1) / (y**2).flatten(1).sum(1)
    torch.testing.assert_close(REGRESSION.losses(restored, y), expected)


def test_a_path_on_the_grid_is_one_value_and_one_between_leaks_around_it() -> None:
    rng = np.random.default_rng(0)
    on_grid = Environment((1, 1), (3.0, 3.0), 1.0, (7.0, 7.0), 0.0)
    (channel,) = generated(on_grid, 1, rng)
    power = (channel**2).sum(0)
    assert power[3, 7] == pytest.approx(2048)
    assert power.sum() == pytest.approx(2048)
    between = replace(on_grid, onset=(3.5, 3.5), sector=(31.5, 31.5))
    (channel,) = generated(between, 1, rng)
    power = (channel**2).sum(0)
    assert power[3, 31] == pytest.approx(power[4, 0], rel=1e-3)  # beams go round
    assert power[3:5].sum() > 0.75 * power.sum()


def test_outdoors_there_are_more_paths_and_longer_delays_and_all_are_sparse() -> None:
    rng, delay = np.random.default_rng(0), np.arange(32)
    late, few = {}, {}
    for name, environment in ENVIRONMENTS.items():
        power = (generated(environment, 200, rng) ** 2).sum(1) / 2048
        late[name] = float((power.sum(2) * delay).sum(1).mean())
        few[name] = float(np.sort(power.reshape(200, -1))[:, -100:].sum(1).mean())
    assert late["indoor"] < 1.5 < 5 < late["outdoor"]
    assert few["outdoor"] < few["indoor"]
    assert min(few.values()) > 0.9  # 100 of 1,024 places have nine tenths of the power


def write(folder: Path, name: str, values: np.ndarray) -> None:
    (folder / "cost2100").mkdir(exist_ok=True)
    savemat(folder / "cost2100" / name, {"HT": values})


def test_channels_of_cost2100_are_centred_normalised_and_dealt_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = {where: rng.random((50, 2048)) for where in ("in", "out")}
    for where, table in values.items():
        write(tmp_path, f"DATA_Htrain{where}.mat", table)
    scenario = replace(SMALL, source="cost2100")
    federation = scenario.build(0, Sources(tmp_path, tmp_path))
    for clients, where in (([0, 1], "in"), ([2, 3], "out")):
        splits = (federation.train, federation.test)
        found = torch.cat([split.of(client)[0] for split in splits for client in clients])
        expected = values[where] - 0.5
        expected /= np.sqrt((expected**2).mean(1, keepdims=True))
        distance = np.abs(found.flatten(1).numpy()[:, None] - expected[None]).max(-1)
        assert (distance.min(1) < 1e-5).all()
        assert len(set(distance.argmin(1).tolist())) == 40
    with pytest.raises(UsageError, match="examples: 26 is not few enough: 2 clients share 50"):
        replace(scenario, examples=26).build(0, Sources(tmp_path, tmp_path))


def test_groups_in_one_environment_share_its_channels(tmp_path: Path) -> None:
    write(tmp_path, "DATA_Htrainin.mat", np.random.default_rng(0).random((80, 2048)))
    twice = replace(SMALL, source="cost2100", environments=("indoor", "indoor"))
    federation = twice.build(0, Sources(tmp_path, tmp_path))
    assert federation.groups is not None
    assert federation.groups.tolist() == [0, 0, 1, 1]
    dealt = torch.cat([federation.train.x, federation.test.x])
    assert len(np.unique(dealt[:, 0, 3, 12])) == 80  # each channel once
    with pytest.raises(UsageError, match="examples: 21 is not few enough: 4 clients share 80"):
        replace(twice, examples=21).build(0, Sources(tmp_path, tmp_path))


def test_what_is_missing_or_wrong_is_named(tmp_path: Path) -> None:
    cost, sources = replace(SMALL, source="cost2100"), Sources(tmp_path, tmp_path)
    with pytest.raises(UsageError, match=r"there is no .*cost2100/DATA_Htrainin\.mat"):
        cost.build(0, sources)
    with pytest.raises(UsageError, match="read from the folder cost2100 of a data directory"):
        cost.build(0, Sources(None, tmp_path))
    write(tmp_path, "DATA_Htrainin.mat", np.zeros((3, 5)))
    with pytest.raises(UsageError, match=r"DATA_Htrainin\.mat: not a MATLAB file with HT"):
        cost.build(0, sources)
    with pytest.raises(UsageError, match="environments: COST2100 has indoor and outdoor, not 'r"):
        replace(cost, environments=("rural",)).build(0, sources)
    with pytest.raises(UsageError, match="environments: 'outdor' is not known; did you mean out"):
        ChannelState(environments=("outdor",))
    for change in ({"environments": ()}, {"clients": 1}, {"examples": 0}, {"test_fraction": 0.0}):
        with pytest.raises(UsageError, match=f"{next(iter(change))}: .* is not"):
            ChannelState(**change)
