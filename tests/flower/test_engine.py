"""Over Flower's messages every method comes to what it comes to in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.algorithms.test_contract import CASES, LOCAL, by_name
from tests.flower.small import SMALL, grid_of, last_state
from umbel.algorithms import IFCA, FedAvg, Sattler
from umbel.checks import UsageError
from umbel.data.sources import Sources
from umbel.engines.privacy import Privacy
from umbel.flower import Settings, serve
from umbel.networks import MLP
from umbel.newcomers import descriptions
from umbel.server.aggregation import Averaging
from umbel.server.robust_rules import FLTrust, Median
from umbel.testing import assert_same_state

METHODS = {
    **CASES,
    "ifca with medians": IFCA(2, LOCAL, Averaging(rule=Median(mixing=True))),
    "fedavg with fltrust": FedAvg(LOCAL, Averaging(rule=FLTrust(trusted=(1, 2)))),
}


@pytest.mark.parametrize("name", by_name(METHODS))
def test_the_same_clusters_and_models_as_in_this_process(name: str, tmp_path: Path) -> None:
    algorithm = METHODS[name]
    share = 1.0 if isinstance(algorithm, Sattler) else 0.75
    experiment = replace(SMALL, algorithm=algorithm, participation=share)
    if "hessian-free" in name:
        # Where a ReLU bends between the two gradients, their difference hangs on the last bit.
        experiment = replace(experiment, model=MLP(()))
    found = last_state(experiment, grid_of(experiment, tmp_path))
    assert_same_state(found, last_state(experiment, None), 1e-4)


def test_a_request_is_one_message_a_node(tmp_path: Path) -> None:
    experiment = replace(SMALL, participation=1.0, rounds=3)
    grid = grid_of(experiment, tmp_path)
    last_state(replace(experiment, evaluate_every=3), grid)
    assert grid.asked.count("query.hello") == 3
    assert grid.asked.count("query.work") == 3 * (3 + 1)  # three rounds and an evaluation


def test_the_records_are_those_of_a_run_in_this_process(tmp_path: Path) -> None:
    folder = serve(grid_of(SMALL, tmp_path), SMALL, Settings(8, runs_dir=str(tmp_path / "runs")))
    run = SMALL.open(Sources.default())
    expected = [record.untimed() for _, record in run.rounds(SMALL.rounds)]
    for one, other in zip(folder.records(), expected, strict=True):
        for name, value in vars(other).items():
            assert getattr(one.untimed(), name) == pytest.approx(value, abs=1e-4), name
    assert folder.finished
    clients = folder.clients()
    assert [client.name for client in clients] == [str(n) for n in range(8)]
    assert run.federation.groups is not None
    assert [int(client.group) for client in clients] == run.federation.groups.tolist()
    assert [client.examples for client in clients] == run.federation.train.sizes.tolist()


def test_clients_describe_their_inputs_for_newcomers_without_labels(tmp_path: Path) -> None:
    settings = Settings(8, runs_dir=str(tmp_path / "runs"))
    plain = serve(grid_of(SMALL, tmp_path), SMALL, settings)
    assert descriptions.load(plain.path) is None
    # A run that was finished before is described when it is started again.
    grid = grid_of(SMALL, tmp_path)
    grid.configs = {node: {**config, "describe": True} for node, config in grid.configs.items()}
    folder = serve(grid, SMALL, replace(settings, describe=True))
    kept = descriptions.load(folder.path)
    assert kept is not None
    run = SMALL.open(Sources.default())
    here = descriptions.described(run, run.net, SMALL.seed)
    torch.testing.assert_close(kept.table, here.table, rtol=1e-5, atol=1e-6)
    assert kept.clients.tolist() == list(range(8))


def test_clients_with_privacy_are_not_asked_to_describe_their_inputs(tmp_path: Path) -> None:
    private = replace(SMALL, algorithm=FedAvg(LOCAL), privacy=Privacy(clip=1.0))
    settings = Settings(8, runs_dir=str(tmp_path / "runs"), describe=True)
    grid = grid_of(private, tmp_path)
    with pytest.raises(UsageError, match=r"describe: True is not false with \[privacy\]"):
        serve(grid, private, settings)
    assert not grid.asked


def test_a_run_says_how_it_goes_and_a_finished_one_that_nothing_is_trained(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "umbel")
    grid = grid_of(SMALL, tmp_path)
    settings = Settings(8, patience=5, runs_dir=str(tmp_path / "runs"))
    path = serve(grid, SMALL, settings).path
    first, second, *rounds, last = [record.getMessage() for record in caplog.records]
    assert first == "waiting for 8 clients, 5 s at most"
    assert second == f"{path}: 8 clients, of whom 8 are at 3 nodes now"
    shown = [line[:9] for line in rounds if line[8:9] == "4"]
    assert shown == ["round 1/4", "round 2/4", "round 3/4", "round 4/4"]
    assert "round 3: asked 6 of 8 clients; 6 replies; 1 model" in rounds
    assert last == f"{path}: finished; `umbel show {path}` shows it"

    caplog.clear()
    before, asked = (path / "records.jsonl").read_bytes(), len(grid.asked)
    assert serve(grid, SMALL, settings).path == path
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{path}: finished already, after 4 rounds, so nothing is trained; ")
    assert f"`umbel show {path}`" in said
    assert "change name or seed" in said
    assert len(grid.asked) == asked  # no node is even greeted
    assert (path / "records.jsonl").read_bytes() == before


def test_a_folder_with_another_experiment_is_refused(tmp_path: Path) -> None:
    settings = Settings(8, patience=5, runs_dir=str(tmp_path / "runs"))
    grid = grid_of(SMALL, tmp_path)
    serve(grid, SMALL, settings)
    with pytest.raises(ValueError, match="another experiment; choose another name, seed or"):
        serve(grid, replace(SMALL, rounds=5), settings)


def test_methods_with_many_models_send_each_node_only_the_rows_it_needs(tmp_path: Path) -> None:
    experiment = replace(SMALL, algorithm=CASES["local-only"], participation=1.0, rounds=2)
    grid = grid_of(experiment, tmp_path, nodes=8)
    last_state(experiment, grid)
    num_values = experiment.open(Sources.default()).net.layout.num_values
    messages = grid.asked.count("query.work")
    assert grid.bytes_down < messages * (4 * num_values + 2000)
