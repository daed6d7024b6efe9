"""The control of a clustered method: FedAvg in random clusters of the sizes that it found."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.shell import Shell
from umbel.algorithms import CFLGP, FedAvg, RandomClusters, Sharing
from umbel.checks import UsageError
from umbel.data.sources import Sources
from umbel.experiment.differences import check_same
from umbel.experiment.library import find_experiment
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.method import Algorithm, Averaging, Context, Flow, LocalTraining, Setup, State, federate
from umbel.result.control import check_room, control, controls
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
class Derived(FedAvg):
    """FedAvg in two halves, as a kind of FedAvg."""

    local: LocalTraining = field(default_factory=lambda: LocalTraining(lr=0.05))

    def init(self, setup: Setup) -> State:
        return Halves().init(setup)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        return federate(state, ctx, self.local, Averaging())


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


def test_methods_that_step_by_other_than_means_of_gradients_have_no_control(tmp_path: Path) -> None:
    send = 'algorithm.send="gradient"'
    ifca = made("ifca-digits", tmp_path, send)
    sums = made(
        "cfl-gp-digits", tmp_path, send, 'algorithm.reduction="sum"', "algorithm.patience=9"
    )
    assert controls([ifca, sums]) == []


@pytest.mark.parametrize("kind", ["Halves", "Around", "Derived"])
def test_the_only_training_of_a_method_of_ones_own_is_found(tmp_path: Path, kind: str) -> None:
    run = made("fedavg-digits", tmp_path, f"algorithm={{name = 'tests.runs.test_control:{kind}'}}")
    ((found,),) = controls([run])
    assert isinstance(found.algorithm, RandomClusters)
    assert found.algorithm.local.lr == 0.05


def test_a_method_without_a_control_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = "algorithm={name = 'tests.runs.test_control:Twice'}"
    assert controls([made("fedavg-digits", tmp_path, own)]) == []
    (said,) = caplog.messages
    assert said.startswith("fedavg-digits has no control: it has no field that is a LocalTraining")


def test_a_control_of_other_settings_is_to_be_removed(tmp_path: Path) -> None:
    found = control(made("ifca-digits", tmp_path))
    with pytest.raises(UsageError, match="remove this folder, and umbel makes it again"):
        check_same(tmp_path / "control", found, replace(found, rounds=1))


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
        ("fl-hc-digits", ["algorithm.cluster_round=9"], "all clients are in one cluster"),
        (
            "lcfl-digits",
            ["algorithm.warm_up=federated", "algorithm.warm_up_rounds=9"],
            "all clients are in one cluster",
        ),
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


def test_a_name_without_room_for_that_of_its_control_is_refused_before_any_training(
    umbel: Shell,
) -> None:
    file = umbel.folder / "both" / "flacc.toml"
    file.write_text(f'name = "{"é" * 110}"\n' + file.read_text())
    said = umbel.refused("compare", "both", "--seeds", "1", "--control")
    assert "is not at most 206 bytes long, as --control adds an ending to it" in said
    assert not (umbel.folder / "runs").exists()


@pytest.mark.parametrize("method", ["fedavg", "local-only", "random-clusters", "pfedme", "Twice"])
def test_a_name_may_be_long_where_a_method_never_has_a_control(method: str) -> None:
    own = ["algorithm={name = 'tests.runs.test_control:Twice'}"] if method == "Twice" else []
    file = find_experiment("fedavg-digits" if own else f"{method}-digits")
    check_room([replace(read(file, own), name="é" * 110)])
