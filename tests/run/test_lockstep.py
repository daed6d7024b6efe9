"""Runs side by side come to the same as each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.federations import blobs
from umbel.algorithms import FLACC, IFCA, FedAvg, FedEM, Joint, PFedMe
from umbel.algorithms.base import Algorithm
from umbel.client.net import Net
from umbel.client.objectives import BINARY, CLASSIFICATION, Objective
from umbel.client.work import LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.engines import EngineSettings
from umbel.engines.replies.faults import Faults
from umbel.engines.replies.guarded import QuorumError
from umbel.engines.replies.validation import Limits
from umbel.flow import Request, Rows
from umbel.folder.execution import execute, execute_together
from umbel.folder.run_folder import RunFolder
from umbel.networks import MLP
from umbel.result.run import Experiment, Run
from umbel.run.joined_requests import merged
from umbel.run.lockstep import is_faster, lockstep_of
from umbel.run.records import Record

LOCAL = LocalTraining(epochs=2, batch_size=10)
EXPERIMENT = Experiment(
    replace(ROTATED_DIGITS, clients=8, examples=(50,)),
    MLP((16,)),
    FLACC(LOCAL, n_sep=2),
    name="small",
    rounds=4,
    participation=0.75,
    engine=EngineSettings(device="cpu"),  # on a GPU no runs are side by side
)
METHODS = [method(local=LOCAL) for method in (FLACC, Joint, FedEM)]


def folders(where: Path, experiment: Experiment, seeds: Sequence[int] = (0, 1)) -> list[RunFolder]:
    return [RunFolder.create(where / str(n), experiment.with_seed(n)) for n in seeds]


def together(runs: Sequence[RunFolder]) -> list[Record]:
    """The records that are reported while they run side by side, as they must."""
    reported: list[Record] = []
    assert execute_together(runs, Sources.default(), reported.append)
    return reported


def alone(runs: Sequence[RunFolder]) -> None:
    for run in runs:
        list(execute(run, Sources.default()))


def assert_same(found: RunFolder, expected: RunFolder) -> None:
    assert found.finished
    for one, other in zip(found.records(), expected.records(), strict=True):
        for name, value in vars(other.untimed()).items():
            assert getattr(one.untimed(), name) == pytest.approx(value, abs=1e-5), name
    clusters = [client.cluster for client in expected.clients()]
    assert [client.cluster for client in found.clients()] == clusters
    state, other_state = (load_file(r.file("checkpoint.safetensors")) for r in (found, expected))
    torch.testing.assert_close(state, other_state, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_each_run_comes_to_what_it_comes_to_by_itself(
    method: Algorithm[Any], tmp_path: Path
) -> None:
    experiment = replace(EXPERIMENT, algorithm=method)
    runs, others = folders(tmp_path / "a", experiment), folders(tmp_path / "b", experiment)
    reported = together(runs)
    alone(others)
    assert [record.round for record in reported] == list(range(4))
    for run, other in zip(runs, others, strict=True):
        assert_same(run, other)


ALIKE = [FedAvg(LOCAL), PFedMe(), IFCA(local=LOCAL)]


@pytest.mark.parametrize("method", ALIKE, ids=["fedavg", "pfedme", "ifca"])
def test_each_run_has_the_very_results_of_a_run_alone(
    method: Algorithm[Any], tmp_path: Path
) -> None:
    experiment = replace(EXPERIMENT, algorithm=method, rounds=3)
    runs, others = folders(tmp_path / "a", experiment), folders(tmp_path / "b", experiment)
    together(runs)
    alone(others)
    for run, other in zip(runs, others, strict=True):
        found, expected = (load_file(each.file("checkpoint.safetensors")) for each in (run, other))
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        assert [r.untimed() for r in run.records()] == [r.untimed() for r in other.records()]


@pytest.mark.parametrize(
    ("clients", "between", "objective", "together"),
    [
        (2, nn.ReLU(), CLASSIFICATION, True),
        (1, nn.ReLU(), CLASSIFICATION, False),
        (2, nn.LayerNorm(8), CLASSIFICATION, False),
        (2, nn.Sigmoid(), CLASSIFICATION, False),
        (2, nn.ReLU(), BINARY, False),
    ],
    ids=["chain", "one client", "normalised", "sigmoid", "yes or no"],
)
def test_only_chains_of_linear_layers_of_several_clients_are_side_by_side(
    clients: int, between: nn.Module, objective: Objective, together: bool
) -> None:
    """Bits of others depend on how many clients are computed at a time."""
    federation = blobs([50] * clients)
    net = Net(lambda: nn.Sequential(nn.Linear(6, 8), between, nn.Linear(8, 3)), objective)
    here = EngineSettings(device="cpu")
    runs = [Run(FedAvg(LOCAL), federation, net, seed=seed, engine=here) for seed in (0, 1)]
    assert (is_faster(runs[0]) and lockstep_of(runs) is not None) == together


def test_runs_that_stopped_in_different_rounds_go_on_together(tmp_path: Path) -> None:
    runs, others = folders(tmp_path / "a", EXPERIMENT), folders(tmp_path / "b", EXPERIMENT)
    alone(runs[:1])
    list(islice(execute(runs[1], Sources.default()), 2))
    runs += folders(tmp_path / "a", EXPERIMENT, [3])
    others += folders(tmp_path / "b", EXPERIMENT, [3])
    together(runs)
    alone(others)
    for run, other in zip(runs, others, strict=True):
        assert_same(run, other)


def test_where_one_ends_in_an_error_all_stop_and_can_go_on(tmp_path: Path) -> None:
    failing = replace(EXPERIMENT, faults=Faults(drop=0.4), limits=Limits(quorum=0.5))
    runs, others = folders(tmp_path / "a", failing), folders(tmp_path / "b", failing)
    with pytest.raises(QuorumError, match="round"):
        together(runs)
    ends = [as_far_as_it_goes(other) for other in others]
    assert set(ends) == {True, False}
    assert [as_far_as_it_goes(run) for run in runs] == ends
    for run, other in zip(runs, others, strict=True):
        assert len(run.records()) == len(other.records())


def as_far_as_it_goes(run: RunFolder) -> bool:
    """Whether it came to its end."""
    with suppress(QuorumError):
        alone([run])
    return run.finished


@pytest.mark.parametrize(
    "change",
    [
        {"engine": EngineSettings(name="sequential", device="cpu")},
        {"model": MLP((1000,))},
        {"scenario": replace(ROTATED_DIGITS, clients=8, examples=(40, 60))},
    ],
    ids=["one client after another", "a large model", "clients of unequal sizes"],
)
def test_nothing_is_done_where_it_would_be_no_faster_or_padding_depend_on_other_runs(
    change: dict[str, Any], tmp_path: Path
) -> None:
    runs = folders(tmp_path, replace(EXPERIMENT, **change))
    assert not execute_together(runs, Sources.default(), lambda _: None)
    assert not any(run.begun for run in runs)


def test_requests_of_two_runs_become_one_of_all_their_clients() -> None:
    models = torch.arange(4.0).reshape(2, 2)
    one, other = (
        Request(LOCAL, torch.tensor(clients), seeds, each={"theta": Rows(models + n, rows)})
        for n, (clients, seeds, rows) in enumerate(
            [([0, 2], [7, 8], torch.tensor([1, 0])), ([1], [9], torch.tensor([1]))]
        )
    )
    both = merged([one, other], first_clients=[0, 10])
    assert both.clients.tolist() == [0, 2, 11]
    assert list(both.seeds) == [7, 8, 9]
    assert both.each["theta"].take(torch.arange(3)).tolist() == [[2, 3], [0, 1], [3, 4]]
