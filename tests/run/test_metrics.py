"""The metrics of a run are in its records, its clients' rows and its tables, and nowhere else."""

from __future__ import annotations

import csv
import io
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, log_loss, roc_auc_score
from torch import nn

import umbel
from umbel.checks import UsageError
from umbel.data.sources import Sources
from umbel.experiment.layers import strangers_in
from umbel.experiment.toml_file import structured, write
from umbel.report.comparison import sheet
from umbel.report.terminal import by_round as course_tables
from umbel.report.terminal import results as terminal
from umbel.result.outcomes import by_method
from umbel.result.run import Experiment
from umbel.run.metrics import check_names

NAMES = ("log-loss", "macro-f1", "auroc")

TABLE: dict[str, Any] = {
    "name": "small",
    "rounds": 2,
    "metrics": list(NAMES),
    "scenario": {"name": "rotated-digits", "clients": 4, "validation_fraction": 0.2},
    "model": {"name": "linear"},
    "algorithm": {"name": "fedavg", "local": {"lr": 0.1}},
}


def net() -> umbel.Net:
    return umbel.Net(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))


def digits(**settings: Any) -> umbel.Federation:
    return umbel.scenario("rotated-digits", clients=4, **settings)


def expected(state: Any, split: Any, client: int) -> list[float]:
    """What scikit-learn says of the first cluster's model on a client's examples."""
    x, y = split.of(client)
    p = net().module(state.models[0])(x).double().softmax(1).detach().numpy()
    areas = [roc_auc_score(y == c, p[:, c]) for c in np.unique(y)]
    loss = log_loss(y, p, labels=np.arange(10))
    return [loss, f1_score(y, p.argmax(1), average="macro"), float(np.mean(areas))]


def test_a_record_has_the_mean_over_clients() -> None:
    federation = digits()
    run = umbel.Run(umbel.FedAvg(), federation, net(), metrics=NAMES)
    *_, (state, record) = run.rounds(2)
    means = np.mean([expected(state, federation.test, c) for c in range(4)], axis=0)
    assert [record.measures[name] for name in NAMES] == pytest.approx(means.tolist(), rel=1e-5)
    assert umbel.Record.from_json(record.to_json()) == record


def test_with_validation_examples_the_test_is_measured_once() -> None:
    federation = digits(validation_fraction=0.2)
    run = umbel.Run(umbel.FedAvg(), federation, net(), metrics=("macro-f1",))
    (_, first), (state, last) = run.rounds(2)
    assert set(first.measures) == {"validation_macro-f1"}
    assert set(last.measures) == {"validation_macro-f1", "macro-f1"}
    assert federation.validation is not None
    for name, split in (
        ("macro-f1", federation.test),
        ("validation_macro-f1", federation.validation),
    ):
        mean = np.mean([expected(state, split, c)[1] for c in range(4)])
        assert last.measures[name] == pytest.approx(mean, rel=1e-5)


def test_clients_without_the_metric_do_not_count() -> None:
    x, rng = torch.randn(30, 3), np.random.default_rng(0)
    both = [(x, torch.from_numpy(rng.integers(0, 2, 30))) for _ in range(2)]
    one_class = (x, torch.ones(30, dtype=torch.long))
    federation = umbel.Federation.from_arrays([*both, one_class], test_fraction=0.5)
    run = umbel.Run(umbel.FedAvg(), federation, umbel.Net(lambda: nn.Linear(3, 2)))
    run = replace(run, metrics=("auroc",))
    ((state, record),) = run.rounds(1)
    scores = run.scores(state, run.context(0, 1))
    assert np.isnan(scores.metrics["auroc"]).tolist() == [False, False, True]
    assert record.measures["auroc"] == pytest.approx(np.nanmean(scores.metrics["auroc"]))
    alone = umbel.Run(umbel.FedAvg(), federation.pick([2]), run.net, metrics=("auroc",))
    ((_, record),) = alone.rounds(1)
    assert record.measures["auroc"] is None


def test_mixtures_and_personal_models_are_measured_as_served() -> None:
    for method in (umbel.FedEM(num_clusters=2), umbel.PFedMe(), umbel.PerFedAvg()):
        run = umbel.Run(method, digits(), net(), metrics=("log-loss",))
        ((_, record),) = run.rounds(1)
        assert record.measures["log-loss"] == pytest.approx(record.loss, rel=1e-4)


def test_a_folder_has_each_clients_metrics(tmp_path: Path, sources: Sources) -> None:
    experiment: Experiment = structured(TABLE, Experiment)
    folder = umbel.RunFolder.create(tmp_path / "run", experiment)
    *_, record = umbel.execute(folder, sources)
    rows = list(csv.DictReader((folder.path / "clusters.csv").read_text().splitlines()))
    first = ["client", "group", "cluster", "examples", "accuracy", "loss"]
    assert list(rows[0]) == [*first, *NAMES]
    result = umbel.load(folder.path)
    for name in NAMES:
        known = [client.metrics[name] for client in result.clients]
        assert known == [float(row[name]) for row in rows]
        assert record.measures[name] == pytest.approx(np.mean(np.array(known, dtype=float)))
    tables = umbel.results(folder.path)
    assert tables.runs.column("auroc") == [record.measures["auroc"]]
    assert tables.clients.column("auroc") == [c.metrics["auroc"] for c in result.clients]
    assert tables.rounds.column("validation_auroc")[0] is not None


def test_tables_of_runs_have_a_column_for_each(tmp_path: Path, sources: Sources) -> None:
    from rich.console import Console

    results = []
    for seed in range(2):
        experiment: Experiment = structured({**TABLE, "seed": seed}, Experiment)
        folder = umbel.RunFolder.create(tmp_path / f"{seed}", experiment)
        list(umbel.execute(folder, sources))
        results.append(umbel.load(folder.path))
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(*terminal.results(results))
    console.print(terminal.run_table(results[0].last, NAMES))
    text = console.export_text()
    mean = np.mean([run.last.measures["macro-f1"] for run in results])
    assert f"{mean:.3f}±" in text
    assert f"{results[0].last.measures['auroc']:.4f}" in text
    assert all(text.count(name) == 2 for name in NAMES)
    assert {*NAMES} <= {*sheet(by_method(results)).heads}
    page = umbel.write_report(tmp_path / "0").read_text()
    assert "validation macro-f1" in page


def test_a_goal_may_be_a_metric_and_rounds_to_it_are_those_on_validation_examples(
    tmp_path: Path, sources: Sources
) -> None:
    from rich.console import Console

    experiment: Experiment = structured({**TABLE, "rounds": 6}, Experiment)
    folder = umbel.RunFolder.create(tmp_path / "run", experiment)
    losses = [r.measures["validation_log-loss"] or 0 for r in umbel.execute(folder, sources)]
    assert losses[-1] < losses[2] < losses[0]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(course_tables.reached([umbel.load(folder.path)], "log-loss", losses[2]))
    assert "3.0" in console.export_text()


def test_toml_says_them(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    experiment: Experiment = structured(TABLE, Experiment)
    file.write_text(write(experiment))
    assert "metrics = [" in file.read_text()
    assert umbel.read(file) == experiment
    assert umbel.read(file, ['metrics=["auroc"]']).metrics == ("auroc",)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("auc",), "metrics: 'auc' is not a known metric"),
        (("one:cost", "other:cost"), "metrics: cost: named twice"),
        (("own:loss",), "metrics: 'own:loss' is not a free name"),
    ],
)
def test_names_must_be_known_and_told_apart(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_names(names)
    with pytest.raises(UsageError, match=message):
        structured({**TABLE, "metrics": list(names)}, Experiment)


def test_metrics_that_do_not_fit_are_refused_before_any_round() -> None:
    with pytest.raises(UsageError, match="metrics: 'mae' is not one for these models"):
        umbel.Run(umbel.FedAvg(), digits(), net(), metrics=("mae",))


def test_ones_own_is_called_by_its_function_and_imported_only_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: Sources
) -> None:
    (tmp_path / "mine.py").write_text(
        "def errors(targets, predictions):\n"
        "    return float((predictions.argmax(1) != targets).sum())\n"
    )
    table = {**TABLE, "metrics": ["mine:errors"]}
    assert list(strangers_in(table)) == ["mine:errors"]
    experiment: Experiment = structured(table, Experiment)
    assert "mine" not in sys.modules
    monkeypatch.syspath_prepend(tmp_path)
    folder = umbel.RunFolder.create(tmp_path / "run", experiment)
    *_, record = umbel.execute(folder, sources)
    monkeypatch.delitem(sys.modules, "mine")
    clients = umbel.load(folder.path).clients
    assert all(
        math.isclose(c.metrics["errors"] or 0, round(c.metrics["errors"] or 0)) for c in clients
    )
    assert record.measures["errors"] == pytest.approx(
        np.mean([client.metrics["errors"] or 0 for client in clients])
    )
    assert "mine" not in sys.modules
