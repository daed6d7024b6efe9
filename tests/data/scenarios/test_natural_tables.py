"""Flights and packages, as the data directory has them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from umbel.data.scenarios.natural_tables import FLIGHTS, PACKAGES
from umbel.data.sources import Sources

pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")

pytestmark = pytest.mark.thorough


def there(sources: Sources, name: str) -> Sources:
    if sources.data_dir is None or not (sources.data_dir / "natural" / name).is_file():
        pytest.skip(f"the data directory has no natural/{name}")
    return sources


def test_flights_are_of_29_carriers_at_airports(real_data: Sources) -> None:
    sources = there(real_data, "flights.parquet")
    scenario = replace(FLIGHTS, train_rows=100, test_rows=50, validation_fraction=0.1)
    federation = scenario.build(0, sources)
    assert federation.num_clients == 29
    assert federation.num_classes == 2
    assert max(federation.train.sizes) == 100
    assert federation.names[0] == "9E-EWR"
    assert federation.attributes["carrier"][0] == "9E"
    assert sorted(set(federation.attributes["origin"])) == ["EWR", "JFK", "LGA"]
    assert bool(federation.train.x.isfinite().all())
    in_one_place = replace(scenario, statistics="pooled").build(0, sources)
    torch.testing.assert_close(
        replace(scenario, statistics="federated").build(0, sources).test.x,
        in_one_place.test.x,
        rtol=1e-4,
        atol=1e-5,
    )


def test_in_time_the_last_months_are_for_the_test(real_data: Sources) -> None:
    scenario = replace(
        FLIGHTS, split="time", columns=("month",), scale=False, train_rows=50, test_rows=50
    )
    federation = scenario.build(0, there(real_data, "flights.parquet"))
    for client in range(federation.num_clients):
        assert federation.train.of(client)[0].max() <= federation.test.of(client)[0].min()


def test_packages_are_of_42_teams(real_data: Sources) -> None:
    scenario = replace(PACKAGES, text_features=32, train_rows=20, test_rows=10)
    federation = scenario.build(0, there(real_data, "packages.parquet"))
    assert federation.num_clients == 42
    assert federation.num_classes == 24
    assert federation.input_shape == (32,)


def test_flights_have_a_step_for_each_month(real_data: Sources) -> None:
    sources = there(real_data, "flights.parquet")
    federation = replace(FLIGHTS, train_rows=50).built_over_time(0, sources, None, "")
    assert federation.num_clients == 29
    assert federation.num_steps == 11
    assert federation.train.steps is not None
    assert federation.train.steps.max() == 50
