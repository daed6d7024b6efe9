"""Runs are compared where they are of the same clients and examples, whatever files hold now."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umbel
from tests.folder.saved import make_run
from umbel.flow import Engine, Replies, Request
from umbel.result.run import Result
from umbel.result.statistics.contenders import contenders, gains
from umbel.result.statistics.data import Data
from umbel.result.statistics.measures import ACCURACY

EXPERIMENT = """
rounds = 1
evaluate_every = 1
[scenario]
name = "folder"
path = "{path}"
[model]
name = "linear"
[algorithm]
name = "{method}"
"""


def clients(folder: Path, names: str, seed: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        rng = np.random.default_rng([seed, ord(name)])
        np.savez(folder / f"{name}.npz", x=rng.normal(size=(20, 3)), y=np.arange(20) % 2)


def made(folder: Path, method: str, *settings: str) -> Result:
    file = folder / f"{method}.toml"
    file.write_text(EXPERIMENT.format(path=(folder / "clients").as_posix(), method=method))
    run = umbel.RunFolder.create(folder / "runs" / method, umbel.read(file, settings))
    for _ in umbel.execute(run):
        pass
    return Result(run)


@pytest.mark.parametrize(("names", "seed"), [("abcz", 0), ("abc", 1)], ids=["one more", "values"])
def test_runs_before_and_after_the_data_changed_are_not_compared(
    names: str, seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clients(tmp_path / "clients", "abc")
    first = made(tmp_path, "fedavg")
    clients(tmp_path / "clients", names, seed)
    second = made(tmp_path, "local-only")
    assert Data.of(first).was_changed(Data.of(second))
    with caplog.at_level(logging.WARNING):
        one, other = contenders([first, second], ACCURACY)
    assert "local-only: clients or examples differ from those of fedavg" in caplog.text
    assert gains(one, other, ACCURACY) == []


def test_tuning_and_other_methods_leave_data_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clients(tmp_path / "clients", "abc")
    plain = made(tmp_path, "fedavg")
    tuned = made(tmp_path, "local-only", "personal.validation_fraction=0.2")
    one, other = contenders([plain, tuned], ACCURACY)
    assert len(gains(one, other, ACCURACY)) == 3
    assert not caplog.records
    (plain.folder.path / "checkpoint.safetensors").write_bytes(b"damaged")
    assert Data.of(plain).is_like(Data.of(tuned))  # as far as is known


@dataclass
class Around:
    """An engine of one's own."""

    inner: Engine

    def send(self, request: Request) -> Replies:
        return self.inner.send(request)


def of_python(folder: Path, **changes: Any) -> Result:
    return make_run(**changes).save(folder / f"{len(list(folder.iterdir()))}-seed0", 1)


def test_runs_of_one_federation_in_python_are_compared_whoever_computes_and_tunes(
    tmp_path: Path,
) -> None:
    plain, personal = of_python(tmp_path), umbel.Personal(epochs=(1,), validation_fraction=0.25)
    tuned = of_python(tmp_path, personal=personal)
    elsewhere = of_python(tmp_path, engine=Around(make_run().clients))
    for one in (plain, tuned, elsewhere):
        assert all(Data.of(one).is_like(Data.of(other)) for other in (plain, tuned, elsewhere))
    more = of_python(tmp_path, personal=replace(personal, validation_fraction=0.5))
    assert Data.of(more).is_like(Data.of(tuned))


def test_runs_of_other_data_in_python_are_not_compared(tmp_path: Path) -> None:
    plain, there = of_python(tmp_path), make_run().federation
    train = replace(there.train, x=there.train.x + 1)
    test = replace(there.test, x=there.test.x + 1)
    names = tuple(f"site {name}" for name in there.names)
    personal = umbel.Personal(epochs=(1,), validation_fraction=0.25)
    for changes, kept in (
        ({"train": train}, None),
        ({"test": test}, personal),
        ({"names": names}, personal),
    ):
        other = of_python(tmp_path, federation=replace(there, **changes), personal=kept)
        assert not Data.of(other).is_like(Data.of(plain))
        assert not Data.of(plain).is_like(Data.of(other))
