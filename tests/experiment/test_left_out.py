"""What another name by `--set` drops is told, where it would have held."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from umbel.experiment.sweep import sweep
from umbel.experiment.toml_file import warn_of_dropped
from umbel.result.run import read

FILE = """
rounds = 7
[scenario]
name = "rotated-digits"
[model]
name = "mlp"
hidden = [5]
[algorithm]
name = "ifca"
num_clusters = 3
[algorithm.local]
lr = 0.02
batch_size = 10
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    return path


@pytest.fixture
def told(file: Path, caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """The warnings for some settings."""

    def messages(*settings: str) -> list[str]:
        caplog.clear()
        warn_of_dropped(file, settings, read(file, settings))
        return caplog.messages

    return messages


def test_settings_that_the_new_method_has_as_well_are_named(
    told: Callable[..., list[str]],
) -> None:
    (line,) = told("algorithm.name=local-only", "algorithm.local.lr=0.3")
    assert line == (
        "mine.toml: algorithm.name=local-only: settings of ifca are left out: "
        "algorithm.local.batch_size; give those that hold here, too, "
        "as by --set algorithm.local.batch_size=..."
    )
    (line,) = told("algorithm.name=lcfl")
    assert "left out: algorithm.num_clusters, algorithm.local.lr, algorithm.local.batch" in line


@pytest.mark.parametrize(
    "settings",
    [
        ["algorithm.local.lr=0.3"],
        ["algorithm.name=ifca", "model.name=linear"],
        ["algorithm.name=fedavg", "algorithm.local.lr=0.3", "algorithm.local.batch_size=32"],
        ['algorithm={name="fedavg", local={lr=0.3}}'],
    ],
)
def test_nothing_is_told_where_nothing_that_holds_is_lost(
    told: Callable[..., list[str]], settings: list[str]
) -> None:
    assert not told(*settings)


def test_a_comparison_tells_of_each(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = ["algorithm.local.lr=0.1,0.3", "algorithm.name=ifca,local-only,fedavg"]
    assert len(sweep(file, given).experiments) == 6
    assert len({*caplog.messages}) == 2
    assert not any("lr" in message for message in caplog.messages)
    caplog.clear()
    sweep(file, ["algorithm.name=local-only", *given[:1], "algorithm.local.batch_size=10"])
    assert not caplog.messages
