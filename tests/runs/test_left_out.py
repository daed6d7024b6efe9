"""What another name by `--set` drops is told, once, where it would have held."""

from __future__ import annotations

from pathlib import Path

import pytest

from umbel.experiment.dropped_settings import left_out
from umbel.experiment.sweep import sweep
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


def told(file: Path, *settings: str) -> list[str]:
    return list(left_out(file, settings, read(file, settings)))


def test_settings_that_the_new_method_has_as_well_are_named(file: Path) -> None:
    (line,) = told(file, "algorithm.name=local-only", "algorithm.local.lr=0.3")
    assert line == (
        "algorithm.name=local-only: settings of ifca are left out: algorithm.local.batch_size; "
        "give those that hold here, too, as by --set algorithm.local.batch_size=..."
    )
    (line,) = told(file, "algorithm.name=lcfl")
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
def test_nothing_is_told_where_nothing_that_holds_is_lost(file: Path, settings: list[str]) -> None:
    assert not told(file, *settings)


def test_a_comparison_tells_each_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = ["algorithm.local.lr=0.1,0.3", "algorithm.name=ifca,local-only,fedavg"]
    assert len(sweep(file, given).experiments) == 6
    assert [message.partition(":")[0] for message in caplog.messages] == ["mine.toml"] * 2
    assert not any("lr" in message for message in caplog.messages)
    caplog.clear()
    sweep(file, ["algorithm.name=local-only", *given[:1], "algorithm.local.batch_size=10"])
    assert not caplog.messages
