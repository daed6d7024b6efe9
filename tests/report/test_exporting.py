"""Runs in other tools, read back by these."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.shell import Shell
from umbel.experiment.layers import flat
from umbel.folder.run_folder import RunFolder
from umbel.run.records import Record, measures_of


@pytest.fixture
def run(umbel: Shell) -> RunFolder:
    umbel("run", "both/flacc.toml", "--set", "faults.drop=0.3")
    return RunFolder(umbel.folder / "runs" / "flacc-seed0")


def expected(run: RunFolder, measure: str) -> list[tuple[int, float]]:
    return [
        (record.round + 1, value)
        for record in run.records()
        for name, value in measures_of(record)
        if name == measure
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_every_number_back(umbel: Shell, run: RunFolder) -> None:
    kind: Any = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="the extra umbel[tensorboard] is not installed",
    )
    for _ in range(2):  # the second replaces the first
        printed, _ = umbel("export", str(run.path), "--to", "tensorboard")
    assert "tensorboard --logdir" in printed
    for _ in range(2):
        umbel("export", str(run.path), "--to", "tensorboard", "--out", "boards")
    for where in (run.file("tensorboard"), Path("boards") / run.path.name):
        found = kind.EventAccumulator(str(where))
        found.Reload()
        for measure in ("accuracy", "loss", "worst", "ari", "bytes_up", "merges", "missing"):
            values = [(event.step, event.value) for event in found.Scalars(measure)]
            assert values == [(step, pytest.approx(v)) for step, v in expected(run, measure)]
        assert "experiment/text_summary" in found.Tags()["tensors"]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_mlflow_reads_every_number_and_setting_back(umbel: Shell, run: RunFolder) -> None:
    mlflow: Any = pytest.importorskip("mlflow", reason="the extra umbel[mlflow] is not installed")
    uri = f"sqlite:///{umbel.folder / 'mlflow.db'}"
    printed, _ = umbel("export", str(run.path), "--to", "mlflow", "--out", uri)
    name = printed.split()[-1]
    client = mlflow.MlflowClient(tracking_uri=uri)
    found = client.get_run(name)
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "flacc-seed0"
    assert found.data.params["algorithm.n_merge"] == "2"
    assert found.data.params["faults.drop"] == "0.3"
    for measure in ("accuracy", "loss", "best_cross", "seconds", "missing"):
        history = client.get_metric_history(name, measure)
        values = sorted((metric.step, metric.value) for metric in history)
        assert values == [(step, pytest.approx(v)) for step, v in expected(run, measure)]
    run.file("clusters.csv").unlink()
    printed, _ = umbel("export", str(run.path), "--to", "mlflow", "--out", uri)
    assert client.get_run(printed.split()[-1]).info.status == "RUNNING"
    message = umbel.refused("export", str(run.path), "--to", "mlflow", "--out", "odd://x")
    assert "--to mlflow: " in message


@pytest.mark.parametrize(
    ("to", "module"), [("tensorboard", "torch.utils.tensorboard"), ("mlflow", "mlflow")]
)
def test_without_the_library_the_extra_is_named(
    to: str, module: str, umbel: Shell, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, module, missing)
    message = umbel.refused("export", str(run.path), "--to", to)
    assert f'pip install "umbel[{to}]"' in message


def test_what_is_not_known_is_left_out() -> None:
    record = Record(3, loss=0.5, missing=(1, 2), measures={"merges": 1.0, "best_cross": None})
    found = dict(measures_of(record))
    assert (found["loss"], found["merges"], found["missing"]) == (0.5, 1.0, 2.0)
    assert not {"accuracy", "best_cross", "round"} & set(found)
    assert dict(flat({"a": 1, "b": {"c": {"d": 2}}})) == {"a": 1, "b.c.d": 2}
