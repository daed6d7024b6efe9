"""Methods may be compared by a metric of their runs: whichever way is better, with an interval."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

from umbel.algorithms import IFCA, FedAvg
from umbel.algorithms.base import Algorithm
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.experiment.library import find_experiment
from umbel.folder.clients_file import Client
from umbel.folder.run_folder import RunFolder
from umbel.result.run import Result, Run, read
from umbel.result.statistics.measures import ACCURACY, LOSS, Measure, measure_named, measure_of
from umbel.result.tables import results
from umbel.testing import blobs, mlp

METRICS = ("perplexity", "macro-f1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods under two seeds that measure two metrics."""
    place = tmp_path_factory.mktemp("measured")
    local = LocalTraining(epochs=1)
    methods: dict[str, Algorithm[Any]] = {
        "fedavg": FedAvg(local),
        "ifca": IFCA(num_clusters=2, local=local),
    }
    for name, method in methods.items():
        for seed in range(2):
            run = Run(method, blobs(), mlp(), seed=seed, metrics=METRICS)
            run.save(place / f"{name}-seed{seed}", rounds=3)
    return place


def runs(place: Path) -> list[Result]:
    return [Result(RunFolder(path)) for path in sorted(place.glob("*-seed*"))]


def by_hand(place: Path, metric: str) -> float:
    """The mean of FedAvg less that of IFCA, over seeds and clients."""
    means = {}
    for name in ("fedavg", "ifca"):
        seeds = [run.clients for run in runs(place) if run.folder.path.name.startswith(name)]
        values = [client.metrics[metric] for each in seeds for client in each]
        means[name] = float(np.mean(np.array(values, dtype=float)))
    return means["fedavg"] - means["ifca"]


def test_a_measure_is_read_from_clients_and_records(place: Path) -> None:
    client = Client("a", 0, 0, accuracy=0.5, loss=1.5, metrics={"perplexity": 4.5})
    record = replace(runs(place)[0].last, loss=2.5, accuracy=0.25, measures={"perplexity": 6.5})
    assert [m.of_client(client) for m in (ACCURACY, LOSS, Measure("perplexity"))] == [0.5, 1.5, 4.5]
    assert [m.of_record(record) for m in (ACCURACY, LOSS, Measure("perplexity"))] == [
        0.25,
        2.5,
        6.5,
    ]


@pytest.mark.parametrize(("metric", "sign"), [("perplexity", 1), ("macro-f1", -1)])
def test_differences_are_of_the_metric_with_its_interval(
    place: Path, metric: str, sign: int
) -> None:
    (row,) = results(place).differences(metric)
    gained = sign * by_hand(place, metric)  # of IFCA
    better = "ifca" if gained > 0 else "fedavg"
    assert (row["method"], row["measure"]) == (better, metric)
    assert row["gain"] == pytest.approx(abs(gained))
    low, high = row["low"], row["high"]
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert low < abs(gained) < high


def test_without_a_judge_it_is_accuracy_or_where_there_is_none_loss(place: Path) -> None:
    (row,) = results(place).differences()
    assert row["measure"] == "accuracy"
    (row,) = results(place).differences("loss")
    assert row["measure"] == "loss"
    assert measure_of(runs(place)) == ACCURACY


def test_without_a_finished_run_the_table_is_empty_whatever_is_asked(
    place: Path, tmp_path: Path
) -> None:
    begun = copytree(place / "fedavg-seed0", tmp_path / "fedavg-seed0")
    (begun / "clusters.csv").unlink()
    for judge in (None, "loss", "perplexity"):
        none = results(tmp_path).differences(judge)
        assert len(none) == len(none.column("gain")) == 0
        assert none.columns == results(place).differences().columns
    with pytest.raises(UsageError, match="judge: 'speed' is not any of"):
        results(tmp_path).differences("speed")


def test_what_is_not_measured_by_all_is_refused() -> None:
    experiment = read(find_experiment("fedavg-digits"), ['metrics=["macro-f1"]'])
    assert measure_named("macro-f1", [experiment]) == Measure("macro-f1")
    with pytest.raises(UsageError, match=r'judge: .* is not measured .* metrics = \["auroc"\]'):
        measure_named("auroc", [experiment])
    with pytest.raises(UsageError, match=r"judge: 'speed' is not any of .*macro-f1"):
        measure_named("speed", [experiment])
