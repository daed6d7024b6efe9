"""What clusters rest on is kept, in a bounded number of files, the same after a kill."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.federations import blobs, mlp
from umbel.algorithms import (
    CFLGP,
    FLACC,
    FLHC,
    IFCA,
    LCFL,
    PACFL,
    SRFCA,
    CLoVE,
    FedAvg,
    FedEM,
    FedGroup,
    FedRC,
    FedSoft,
    FeSEM,
    Joint,
    Restarts,
    Sattler,
    StoCFL,
)
from umbel.algorithms.base import Algorithm, State
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.data.sources import Sources
from umbel.experiment.library import find_experiment
from umbel.folder.evidence_folder import REGULAR, TURNS, EvidenceFolder, spacing
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.result.run import Run, read
from umbel.run.rounds import SAMPLED, sample
from umbel.server.ask import Sample
from umbel.server.clusterers import KMedoids

LOCAL = LocalTraining(epochs=2, batch_size=8)

KEEPING: dict[str, tuple[Algorithm[Any], set[str]]] = {
    "flacc": (FLACC(LOCAL, n_sep=3), {"similarity"}),
    "sattler": (Sattler(LOCAL, eps_1=10, eps_2=0, from_round=2), {"similarity"}),
    "fl-hc": (FLHC(num_clusters=2, cluster_round=2, local=LOCAL), {"distance"}),
    "lcfl": (LCFL(LOCAL, clusterer=KMedoids(2)), {"distance"}),
    "pacfl": (PACFL(num_clusters=2, local=LOCAL), {"distance"}),
    "cfl-gp": (CFLGP(2), {"features", "singular_values"}),
    "ifca": (Restarts(IFCA(2, LOCAL), 2, 3), {"losses"}),
    "clove": (CLoVE(2, local=LOCAL), {"losses"}),
    "fesem": (FeSEM(2, local=LOCAL), {"features"}),
    "joint": (Joint(2), {"scores"}),
    "fedgroup": (FedGroup(2, local=LOCAL), {"similarity"}),
    "stocfl": (StoCFL(local=LOCAL), {"similarity"}),
    "sr-fca": (SRFCA(local=LOCAL), {"distance"}),
    "fedem": (FedEM(2, LOCAL), {"weights"}),
    "fedrc": (FedRC(2, LOCAL), {"weights"}),
    "fedsoft": (FedSoft(2, local=LOCAL), {"weights"}),
}


@pytest.mark.parametrize("name", KEEPING)
def test_evidence_is_about_known_clients_and_has_its_shape(name: str, tmp_path: Path) -> None:
    algorithm, expected = KEEPING[name]
    run = Run(algorithm, blobs(), mlp())
    folder, state = EvidenceFolder(tmp_path / "evidence"), run.start(12)
    for after, record in run.rounds(12):
        folder.note(algorithm, state, after, record.round, record.round == 11)
        state = after
    snapshots = folder.read()
    assert snapshots
    for snapshot in snapshots:
        assert set(snapshot.tensors) == {"clients", *expected}
        size = len(snapshot.tensors["clients"])
        assert snapshot.tensors["clients"].tolist() == sorted(set(snapshot.tensors["clients"]))
        for kind in expected - {"singular_values"}:
            values = snapshot.tensors[kind]
            assert values.shape == (size, size if kind in ("similarity", "distance") else 2)
            assert values.isfinite().any()


def test_methods_without_clusters_of_their_own_keep_nothing(tmp_path: Path) -> None:
    algorithm, run = FedAvg(LOCAL), Run(FedAvg(LOCAL), blobs(), mlp())
    folder, start = EvidenceFolder(tmp_path / "evidence"), run.start(2)
    for state, record in run.rounds(2):
        folder.note(algorithm, start, state, record.round, record.round == 1)
    assert not folder.read()
    assert not folder.path.exists()


def test_the_similarities_before_a_separation_are_kept(tmp_path: Path, sources: Sources) -> None:
    experiment = read(find_experiment("flacc-digits"), ["evaluate_every=100", "rounds=40"])
    folder = RunFolder.create(tmp_path, experiment)
    records = list(execute(folder, sources))
    (separated,) = [b.round for a, b in pairwise(records) if a.num_models != b.num_models]
    last = folder.evidence.read()[-1]
    assert last.round == separated - 1
    similarity = last.tensors["similarity"]
    assert torch.equal(similarity.isnan(), similarity.T.isnan())
    torch.testing.assert_close(similarity.diagonal(), torch.ones_like(similarity[0]))
    assert len(folder.evidence.read()) <= REGULAR + TURNS + 1


class Growing(FedAvg):
    """Gains a model in every tenth round, and has something to say in each."""

    def evidence(self, state: State, sample: Sample) -> dict[str, torch.Tensor]:  # noqa: ARG002
        return {"clients": torch.zeros(1).long(), "scores": state.labels[:1, None].float()}


@pytest.mark.parametrize("killed", [40, 250])
def test_a_long_run_keeps_few_files_and_the_same_after_a_kill(killed: int, tmp_path: Path) -> None:
    algorithm, rounds = Growing(), 300

    def states(number: int) -> State:
        return State(torch.zeros(1 + number // 10, 1), torch.tensor([number]))

    def go(folder: EvidenceFolder, first: int, end: int) -> None:
        for number in range(first, end):
            last = number == rounds - 1
            folder.note(algorithm, states(number), states(number + 1), number, last)
            assert len(list(folder.path.glob("*"))) <= REGULAR + TURNS + 1

    whole, stopped = EvidenceFolder(tmp_path / "whole"), EvidenceFolder(tmp_path / "stopped")
    go(whole, 0, rounds)
    go(stopped, 0, killed)
    (stopped.path / "round-00007.partial").write_bytes(b"half")  # of a process that was killed
    (stopped.path / ".round-00007.safetensors.0a1b2c3d.partial").mkdir()
    stopped.cut(max(0, killed - 7))
    go(stopped, max(0, killed - 7), rounds)
    kept = {file.name: file.read_bytes() for file in whole.path.iterdir()}
    assert {file.name: file.read_bytes() for file in stopped.path.iterdir()} == kept
    found = [snapshot.round for snapshot in whole.read()]
    assert found[0] == 0
    assert found[-1] == 299
    assert {279, 288, 289} <= set(found)  # where models were added last


def test_the_spacing_doubles() -> None:
    assert [spacing(done) for done in (1, 14, 15, 29, 30, 60)] == [1, 1, 2, 2, 4, 8]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "round-00003.safetensors").write_bytes(b"?")
    with pytest.raises(UsageError, match=r"round-00003\.safetensors: damaged: .*; remove it"):
        EvidenceFolder(tmp_path).read()


def test_many_clients_are_thinned_evenly() -> None:
    assert sample(3).tolist() == [0, 1, 2]
    assert sample(0).tolist() == []
    places = sample(10_000)
    assert len(places) == SAMPLED
    assert places[[0, -1]].tolist() == [0, 9_999]
    assert len(set(places.diff().tolist())) == 2


def test_evidence_of_rounds_that_are_done_again_is_gone_once_the_run_goes_on(
    tmp_path: Path, sources: Sources
) -> None:
    experiment = read(find_experiment("ifca-digits"), ["rounds=6", "checkpoint_every=3"])
    folder = RunFolder.create(tmp_path, experiment)
    for expected in ([0, 1, 2, 3, 4], [3]):
        rounds = execute(folder, sources)
        assert [record.round for record in islice(rounds, len(expected))] == expected
        rounds.close()  # type: ignore[attr-defined]
    assert [snapshot.round for snapshot in folder.evidence.read()] == [0, 1, 2, 3]
