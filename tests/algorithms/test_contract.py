"""What every method owes its users, whoever wrote it: a new one joins with one line."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.federations import NEEDS_EVERYONE, blobs, mlp
from umbel.algorithms import (
    ALGORITHMS,
    CFLGP,
    FLACC,
    FLHC,
    IFCA,
    LCFL,
    PACFL,
    FedAvg,
    FedEM,
    FedProx,
    Joint,
    LocalOnly,
    Oracle,
    PerFedAvg,
    PFedMe,
    Sattler,
)
from umbel.algorithms.base import Algorithm, State
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.client.work import Gradient, LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.engines import EngineSettings, Sequential
from umbel.engines.validation import Limits
from umbel.engines.wrappers import Faults
from umbel.flow import Replies, Request
from umbel.runs import checkpoint
from umbel.runs.config import plain, read, structured
from umbel.runs.execution import execute, load
from umbel.runs.folder import RunFolder
from umbel.runs.library import find_experiment
from umbel.runs.run import Run
from umbel.server.aggregation import Averaging
from umbel.server.clusterers import DBSCAN, HDBSCAN, Agglomerative

LOCAL = LocalTraining(epochs=2, batch_size=8)


def cases(local: LocalTraining) -> dict[str, Algorithm[Any]]:
    """Every method, with each option that changes what it asks or remembers."""
    shared = Averaging("equal", shared=("1.*",))
    return {
        "local-only": LocalOnly(local),
        "fedavg": FedAvg(local),
        "fedprox": FedProx(local=local),
        "ifca": IFCA(num_clusters=2, local=local),
        "ifca, gradients": IFCA(num_clusters=2, local=local, send="gradient"),
        "ifca, restarts": IFCA(num_clusters=2, local=local, restarts=2, trial_rounds=3),
        "ifca, shared trunk": IFCA(num_clusters=2, local=local, averaging=shared),
        "flacc": FLACC(local=local, n_sep=2),
        "ifca, mini-batch": IFCA(local=local, judge="mini-batch"),
        "flacc, gradients": FLACC(local=local, n_sep=2, similarity="gradient"),
        "cfl-gp": CFLGP(local=local, gradient=Gradient(8)),
        "cfl-gp, updates": CFLGP(
            local=local, send="update", period=2, beta="latest", compression=4, digits=3
        ),
        "lcfl": LCFL(local=local),
        "lcfl, federated": LCFL(
            local=local, metric="loss-gap", warm_up="federated", warm_up_rounds=2, max_examples=9
        ),
        "lcfl, gradients": LCFL(local=local, metric="gradient", clusterer=HDBSCAN()),
        "lcfl, updates": LCFL(local=local, metric="update", clusterer=Agglomerative(threshold=0.9)),
        "lcfl, own starts": LCFL(
            local=local, metric="parameters", start="own", clusterer=DBSCAN(4.0, noise="apart")
        ),
        "joint": Joint(local=replace(local, steps=1)),
        "joint, distance": Joint(
            local=local, similarity="euclidean", sign="literal", reduction="sum", repair="always"
        ),
        "oracle": Oracle(local),
        "sattler": Sattler(local, eps_1=2.0, eps_2=0.1, from_round=1, gamma_max=0.1),
        "sattler, gradients": Sattler(local, 2.0, 0.1, from_round=1, send="gradient"),
        "fl-hc": FLHC(threshold=1.0, cluster_round=1, local=local),
        "fl-hc, ward": FLHC(2, None, 3, metric="l2", linkage="ward", local=local),
        "pacfl": PACFL(threshold=30.0, num_vectors=2, angle="sum", local=local),
        "pacfl, per class": PACFL(num_clusters=2, num_vectors=1, per_class=True, local=local),
        "fedem": FedEM(num_clusters=2, local=local),
        "fedem, shared trunk": FedEM(num_clusters=2, local=local, averaging=shared),
        "pfedme": PFedMe(local=replace(local, lr=0.01), beta=1.5, personal_lr=0.05),
        "per-fedavg": PerFedAvg(alpha=0.1, local=local),
        "per-fedavg, first-order": PerFedAvg(0.1, "first-order", served_steps=2, local=local),
        "per-fedavg, hessian-free": PerFedAvg(0.1, "hessian-free", local=local),
    }


CASES = cases(LOCAL)

ROUNDS = 6
SIZES = (20, 13, 31, 18, 25, 40, 16, 22)

every_method = pytest.mark.parametrize("algorithm", CASES.values(), ids=CASES.keys())


def make_run(algorithm: Algorithm[Any], dtype: torch.dtype = torch.float64, **changes: Any) -> Run:
    participation = 1.0 if isinstance(algorithm, NEEDS_EVERYONE) else 0.75
    run = Run(algorithm, blobs(SIZES), mlp(dtype=dtype), seed=3, participation=participation)
    return replace(run, **changes)


def last_state(run: Run, rounds: int = ROUNDS, **resumed: Any) -> State:
    *_, (state, _) = run.rounds(rounds, **resumed)
    return state


def assert_same(found: State, expected: State, tolerance: float = 0.0) -> None:
    for member in fields(expected):
        a, b = getattr(found, member.name), getattr(expected, member.name)
        if isinstance(b, Tensor):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            assert a == pytest.approx(b, abs=tolerance, nan_ok=True)


class Shuffled:
    """An engine whose replies come in any order."""

    def __init__(self, run: Run) -> None:
        self.engine, self.rng = run.clients, np.random.default_rng(0)

    def send(self, request: Request) -> Replies:
        replies = self.engine.send(request)
        return replies.pick(torch.from_numpy(self.rng.permutation(len(replies.clients))))


def test_every_registered_method_is_listed_here() -> None:
    assert {type(algorithm) for algorithm in CASES.values()} == set(ALGORITHMS.values())


@every_method
def test_engines_agree(algorithm: Algorithm[Any]) -> None:
    batched = last_state(make_run(algorithm, engine=EngineSettings("vectorised", "cpu")))
    one_by_one = last_state(make_run(algorithm, engine=EngineSettings("sequential", "cpu")))
    assert_same(batched, one_by_one, 1e-9)


@every_method
def test_the_order_of_replies_is_free(algorithm: Algorithm[Any]) -> None:
    run = make_run(algorithm)
    assert_same(last_state(replace(run, engine=Shuffled(run))), last_state(run))


@every_method
def test_the_same_run_twice_gives_the_same_records(algorithm: Algorithm[Any]) -> None:
    def records() -> list[object]:
        return [record.untimed() for _, record in make_run(algorithm).rounds(ROUNDS)]

    assert records() == records()


@every_method
def test_a_resumed_run_ends_as_the_uninterrupted_one(
    algorithm: Algorithm[Any], tmp_path: Path
) -> None:
    run, file = make_run(algorithm), tmp_path / "state.safetensors"
    for state, record in run.rounds(ROUNDS):
        if record.round == 2:
            checkpoint.save(file, state, 3)
    restored, first = checkpoint.load(file, run.start(ROUNDS))
    assert first == 3
    assert_same(last_state(run, state=restored, first=first), last_state(run))


@every_method
def test_faults_are_survived_and_named(algorithm: Algorithm[Any]) -> None:
    faults = Faults(drop=0.1, late=0.05, not_finite=0.1, wrong_shape=0.05, huge=0.1)
    run = make_run(algorithm, faults=faults, limits=Limits(quorum=0.0))
    absent = 0
    for state, record in run.rounds(ROUNDS):
        assert state.models.isfinite().all()
        assert state.models.abs().max() < 100
        absent += len(record.missing) + len(record.refused)
    assert absent > 3


@every_method
def test_clients_never_asked_are_served(algorithm: Algorithm[Any]) -> None:
    if isinstance(algorithm, NEEDS_EVERYONE):
        with pytest.raises(UsageError, match=r"participation: 0\.2 is not 1"):
            make_run(algorithm, participation=0.2)
        return
    run = make_run(algorithm, participation=0.2)
    state, record = next(run.rounds(1))
    scores = run.scores(state, run.context(0, 1))
    assert len(scores.clusters) == len(SIZES)
    assert np.isfinite(scores.accuracy).all()
    assert record.accuracy == pytest.approx(scores.accuracy.mean())


@every_method
def test_everyone_may_take_part_and_so_may_one(algorithm: Algorithm[Any]) -> None:
    for participation in (1.0,) if isinstance(algorithm, NEEDS_EVERYONE) else (1.0, 1e-9):
        assert last_state(make_run(algorithm, participation=participation)).models.isfinite().all()


@every_method
def test_a_federation_of_one_client_is_fine(algorithm: Algorithm[Any]) -> None:
    run = make_run(algorithm, federation=blobs([12], num_groups=1))
    components = isinstance(algorithm, FedEM)  # one client may be a mixture of many
    if not components and (getattr(algorithm, "num_clusters", None) or 1) > 1:
        with pytest.raises(UsageError, match="num_clusters: 2 is not at most"):
            run.rounds(1)
    else:
        assert last_state(run).models.isfinite().all()


@every_method
def test_its_settings_read_back_from_toml_the_same(algorithm: Algorithm[Any]) -> None:
    assert structured({"a": plain(algorithm)}["a"], Algorithm) == algorithm


@every_method
def test_a_round_leaves_the_state_before_it_as_it_was(algorithm: Algorithm[Any]) -> None:
    run, seen = make_run(algorithm), []
    for state, _ in run.rounds(ROUNDS):
        members = [getattr(state, member.name) for member in fields(state)]
        seen.append((state, [m.clone() if isinstance(m, Tensor) else m for m in members]))
    for state, kept in seen:
        assert_same(state, replace(state, **_named(state, kept)))


def _named(state: State, members: list[Any]) -> dict[str, Any]:
    return {member.name: kept for member, kept in zip(fields(state), members, strict=True)}


# Gradients move no buffers: methods that send them alone leave running statistics as they were.
WITH_BUFFERS = [name for name in CASES if "gradients" not in name and name != "cfl-gp"]


@pytest.mark.parametrize("name", WITH_BUFFERS)
def test_batch_normalisation_is_averaged_with_the_rest(name: str) -> None:
    net = Net(lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double())
    run = make_run(cases(replace(LOCAL, drop_last=True))[name], net=net)
    assert isinstance(run.clients, Sequential)
    state = last_state(run)
    assert state.models.isfinite().all()
    variance = net.layout.tensors(state.models[0])["1.running_var"]
    assert (variance - 1).abs().min() > 1e-3


FINDERS = [
    *("cfl-gp", "fl-hc", "flacc", "ifca-restarts", "joint", "lcfl", "oracle", "pacfl", "sattler")
]


@pytest.mark.parametrize("name", FINDERS)
def test_groups_are_found_on_real_digits_and_newcomers_join_theirs(
    name: str, sources: Sources, tmp_path: Path
) -> None:
    experiment = replace(read(find_experiment(f"{name}-digits")), evaluate_every=1000)
    folder = RunFolder.create(tmp_path, experiment)
    *_, record = execute(folder, sources)
    assert record.ari == 1.0
    assert record.num_clusters == 4
    # Other images, dealt to as many clients in the same groups.
    newcomers = ROTATED_DIGITS.build(seed=99, sources=sources)
    assert newcomers.groups is not None
    found = load(tmp_path).assign(newcomers)
    assert list(found.clusters.values()) == newcomers.groups.tolist()


def test_flacc_is_fedavg_until_it_separates() -> None:
    fedavg = [state.models for state, _ in make_run(FedAvg(LOCAL)).rounds(ROUNDS)]
    flacc = [state for state, _ in make_run(FLACC(LOCAL, n_sep=50)).rounds(ROUNDS)]
    for found, expected in zip(flacc, fedavg, strict=True):
        torch.testing.assert_close(found.models, expected)


def test_fedprox_without_a_pull_is_fedavg() -> None:
    assert_same(last_state(make_run(FedProx(0.0, LOCAL))), last_state(make_run(FedAvg(LOCAL))))


def test_ifca_with_one_cluster_is_fedavg() -> None:
    one = last_state(make_run(IFCA(num_clusters=1, local=LOCAL)))
    torch.testing.assert_close(one.models, last_state(make_run(FedAvg(LOCAL))).models)
