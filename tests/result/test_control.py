"""The control of a clustered method: FedAvg in random clusters of the sizes that it found."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.shell import Shell
from umbel.algorithms import CFLGP, RandomClusters, Sharing
from umbel.data.sources import Sources
from umbel.experiment.library import find_experiment
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.method import Algorithm, Averaging, Context, Flow, LocalTraining, Setup, State, federate
from umbel.result.control import control, controls
from umbel.result.run import read


def made(name: str, folder: Path, *settings: str) -> RunFolder:
    small = ["rounds=3", "scenario.clients=8", "scenario.examples=[20]", "evaluate_every=3"]
    run = RunFolder.create(folder / name, read(find_experiment(name), [*small, *settings]))
    for _ in execute(run, Sources.default()):
        pass
    return run


@dataclass(frozen=True)
class Halves(Algorithm[State]):
    """FedAvg in two halves, with names of its own for its training."""

    training: LocalTraining = field(default_factory=lambda: LocalTraining(lr=0.05))
    averaging: Averaging = field(default_factory=Averaging)

    def init(self, setup: Setup) -> State:
        return State(setup.copies(2), torch.arange(setup.num_clients) % 2)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        return federate(state, ctx, self.training, self.averaging)


@dataclass(frozen=True)
class Around(Algorithm[State]):
    """Another method, as it is."""

    inside: Halves = field(default_factory=Halves)

    def init(self, setup: Setup) -> State:
        return self.inside.init(setup)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        return self.inside.round(state, ctx)


@dataclass(frozen=True)
class Twice(Halves):
    """Has a second training."""

    late: LocalTraining = field(default_factory=LocalTraining)


def test_a_control_differs_from_the_run_in_who_is_in_which_cluster_alone(tmp_path: Path) -> None:
    run = made("ifca-digits", tmp_path, "seed=3")
    found = control(run)
    sizes = sorted(np.bincount([client.cluster for client in run.clients()]), reverse=True)
    assert isinstance(found.algorithm, RandomClusters)
    assert list(found.algorithm.sizes) == sizes
    assert found.algorithm.num_clusters == len(sizes)
    experiment = run.experiment
    for name in ("scenario", "model", "seed", "rounds", "participation"):
        assert getattr(found, name) == getattr(experiment, name)
    assert found.algorithm.local == experiment.algorithm.local  # type: ignore[attr-defined]


def test_the_control_of_a_method_whose_clients_send_gradients_takes_one_step_a_round(
    tmp_path: Path,
) -> None:
    run = made("cfl-gp-digits", tmp_path, 'algorithm.send="gradient"', "algorithm.patience=9")
    method = run.experiment.algorithm
    found = control(run).algorithm
    assert isinstance(found, RandomClusters)
    assert isinstance(method, CFLGP)
    assert (found.local.steps, found.local.batch_size) == (1, method.gradient.batch_size)
    assert found.local.lr == method.local.lr


@pytest.mark.parametrize("kind", ["Halves", "Around"])
def test_the_only_training_of_a_method_of_ones_own_is_found(tmp_path: Path, kind: str) -> None:
    run = made(
        "fedavg-digits", tmp_path, f"algorithm={{name = 'tests.result.test_control:{kind}'}}"
    )
    ((found,),) = controls([run])
    assert isinstance(found.algorithm, RandomClusters)
    assert found.algorithm.local.lr == 0.05


def test_a_method_without_a_control_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = "algorithm={name = 'tests.result.test_control:Twice'}"
    assert controls([made("fedavg-digits", tmp_path, own)]) == []
    (said,) = caplog.messages
    assert said.startswith("fedavg-digits has no control: it has no field that is a LocalTraining")


def test_the_control_of_a_method_that_shares_a_part_shares_the_same(tmp_path: Path) -> None:
    run = made("fl-hc-digits", tmp_path, "algorithm.cluster_round=1", "algorithm.kept=['*.bias']")
    ((found,),) = controls([run])
    assert isinstance(found.algorithm, Sharing)
    assert found.algorithm.kept == ("*.bias",)
    assert isinstance(found.algorithm.of, RandomClusters)


def test_methods_with_one_cluster_or_one_a_client_have_no_control(tmp_path: Path) -> None:
    folders = [made(f"{name}-digits", tmp_path) for name in ("fedavg", "local-only", "oracle")]
    ((found,),) = controls(folders)
    assert found.name == "oracle-digits,control=random-clusters"
    assert controls([made("random-clusters-digits", tmp_path)]) == []


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("flacc-digits", [], "one model serves its [2-7] clusters so far, and random ones would"),
        ("sattler-digits", [], "all clients are in one cluster"),
        ("cfl-gp-digits", ["algorithm.period=9", "rounds=1"], "its clusters are still those"),
    ],
)
def test_before_it_has_clustered_its_clients_a_method_has_nothing_to_be_compared_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, settings: list[str], why: str
) -> None:
    assert controls([made(name, tmp_path, *settings)]) == []
    assert re.search(f"{name} has no control: {why}", caplog.text)


def test_the_control_of_a_seed_that_has_one_model_for_all_has_one_model_too(tmp_path: Path) -> None:
    apart = ("algorithm.n_merge=9", "algorithm.n_sep=1", "rounds=6")
    soon = made("flacc-digits", tmp_path / "0", *apart)
    late = made("flacc-digits", tmp_path / "1", "seed=1")
    ((first, second),) = controls([soon, late])
    assert isinstance(first.algorithm, RandomClusters)
    assert isinstance(second.algorithm, RandomClusters)
    assert first.algorithm.num_clusters > 1
    assert second.algorithm.sizes == (8,)


def test_compare_adds_controls_once_and_says_how_far_methods_are_ahead(umbel: Shell) -> None:
    umbel.clustering()
    words = ("compare", "both", "--seeds", "1", "--set", "rounds=2", "--control")
    printed, _ = umbel(*words)
    table = printed[printed.index("method") : printed.index("accuracy: mean")]
    assert "ifca (random" in table
    assert "fedavg (random" not in table
    assert "over its random clusters" in printed
    path = umbel.folder / "runs" / "both" / "ifca,control=random-clusters-seed0"
    clusters = (path / "clusters.csv").read_bytes()
    printed, _ = umbel(*words)
    assert printed.count("finished already") == 3
    (path / "clusters.csv").unlink()
    umbel(*words)
    assert (path / "clusters.csv").read_bytes() == clusters
    assert "over its random clusters" in umbel("show", "runs/both")[0]
