"""Settings of runs and nodes are read from numbers or text, and refused by their names."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from tests.flower.small import clients, site
from umbel.checks import UsageError
from umbel.flower import Settings, slice_of
from umbel.flower.discovery import Meeting
from umbel.flower.limits import NodeLimits


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"clients": "abc"}, "clients: 'abc' is not a whole number"),
        ({"clients": -1}, "clients: -1 is not 0 or more"),
        ({"patience": "soon"}, "patience: 'soon' is not a number"),
        ({"time-limit": "nan"}, "time-limit: nan is not more than 0"),
        ({"input-shape": "28x28"}, "input-shape: '28x28' is not whole numbers of 1 or more, as in"),
        ({"describe": "perhaps"}, "describe: 'perhaps' is not true or false"),
    ],
)
def test_a_setting_of_a_run_that_can_not_be_is_named(config: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        Settings.of(config)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clients": "4"}, "Settings: clients: '4' is not a whole number"),
        ({"input_shape": (28, 28)}, "Settings: input_shape: (28, 28) is not a string"),
        ({"client": 4}, "Settings: client: unknown; did you mean clients?"),
    ],
)
def test_so_is_a_setting_that_is_given_in_python(given: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        Settings(**given)
    assert str(refused.value).startswith(message)


def test_settings_of_a_run_may_be_numbers_or_text() -> None:
    text = {"clients": "3", "patience": "0.5", "release-after": "inf", "describe": "True"}
    numbers = {"clients": 3, "patience": 0.5, "release-after": float("inf"), "describe": True}
    assert Settings.of(text) == Settings.of(numbers)
    assert Settings.of({}) == Settings()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"partition-id": 0}, "num-partitions: None is not a whole number"),
        ({"partition-id": "one", "num-partitions": 2}, "partition-id: 'one' is not a whole number"),
        ({"partition-id": 2, "num-partitions": 2}, "partition-id: 2 is not in 0 to 1, as num-par"),
    ],
)
def test_a_setting_of_a_node_that_can_not_be_is_named(config: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        slice_of(Context(1, 1, config, RecordDict(), {}), clients(["a", "b"]))
    assert str(refused.value).startswith(message)


def test_a_limit_of_a_node_may_be_text_or_a_power_of_ten() -> None:
    config = {"max-steps": 1e6, "max-bytes": "1000", "max-examples": "1e3", "max-seconds": inf}
    found = NodeLimits.of(config)
    expected = NodeLimits(max_steps=10**6, max_bytes=1000, max_examples=1000, max_seconds=inf)
    assert found == expected
    assert type(found.max_steps) is int
    assert NodeLimits.of({}) == NodeLimits()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max-bytes": "4GB"}, "max-bytes: '4GB' is not a whole number"),
        ({"max-examples": 0}, "max-examples: 0 is not more than 0"),
    ],
)
def test_a_node_with_a_wrong_limit_is_left_out_before_the_first_round(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    grid = site(tmp_path, clients(["a"]), clients(["b"]))
    grid.configs = {1: {}, 2: config}
    meeting = Meeting(grid, 5.0)
    assert meeting.gather(2, 0.1) == {"a": 1}
    assert message in meeting.owners.refused["node 2"]
