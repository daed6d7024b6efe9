"""Runs side by side come to the same as each by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.federations import blobs
from umbel.algorithms import FLACC, IFCA, LCFL, FedAvg, FedEM, Joint, LocalOnly, PFedMe
from umbel.algorithms.base import Algorithm
from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.objectives import BINARY, CLASSIFICATION, Objective
from umbel.client.optimizers import Adam
from umbel.client.work import Gradient, LocalTraining, TrainAndGradient, Work
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.engines import EngineSettings, Vectorised
from umbel.engines.replies.faults import Faults
from umbel.engines.replies.guarded import QuorumError
from umbel.engines.replies.validation import Limits
from umbel.flow import Engine, Replies, Request, Rows
from umbel.folder.execution import MOST_RUNS_TOGETHER, execute, execute_together
from umbel.folder.run_folder import RunFolder
from umbel.networks import MLP
from umbel.result.run import Experiment, Run
from umbel.run.joined_requests import kind_of, merged
from umbel.run.lockstep import MeetingPoint, is_faster, joined, seats
from umbel.run.records import Record

LOCAL = LocalTraining(epochs=2, batch_size=10)
EXPERIMENT = Experiment(
    replace(ROTATED_DIGITS, clients=8, examples=(50,)),
    MLP((16,)),
    FLACC(LOCAL, n_sep=2),
    name="small",
    rounds=6,
    participation=0.75,
    engine=EngineSettings(device="cpu"),  # on a GPU no runs are side by side
)
METHODS = [method(local=LOCAL) for method in (FLACC, IFCA, LCFL, Joint, FedEM, LocalOnly)]


@dataclass(frozen=True)
class Halved(LocalTraining):
    """A work of a user's that sends half of the gradient at the model on a mini-batch, too."""

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        first = next(iter(shard.batches()))
        gradient, _ = net.gradient(sent["theta"], first)
        return {**super().__call__(net, shard, sent), "update": gradient / 2}


def folders(
    where: Path, experiment: Experiment, seeds: Sequence[int] = (0, 1, 2)
) -> list[RunFolder]:
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
    torch.testing.assert_close(state, other_state, rtol=1e-4, atol=1e-5)


def test_in_bfloat16_each_run_is_by_itself(tmp_path: Path) -> None:
    half = replace(EXPERIMENT, engine=EngineSettings(device="cpu", precision="bf16"))
    assert not execute_together(folders(tmp_path, half), Sources.default(), print)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_each_run_comes_to_what_it_comes_to_by_itself(
    method: Algorithm[Any], tmp_path: Path
) -> None:
    experiment = replace(EXPERIMENT, algorithm=method)
    runs, others = folders(tmp_path / "a", experiment), folders(tmp_path / "b", experiment)
    reported = together(runs)
    alone(others)
    assert [record.round for record in reported] == list(range(6))
    for run, other in zip(runs, others, strict=True):
        assert_same(run, other)


ALIKE = [FedAvg(LOCAL), PFedMe(), IFCA(local=LOCAL), IFCA(num_clusters=1, local=LOCAL)]


@pytest.mark.parametrize("participation", [0.75, 1.0])
@pytest.mark.parametrize("method", ALIKE, ids=["fedavg", "pfedme", "ifca", "one model"])
def test_each_run_has_the_very_results_of_a_run_alone(
    method: Algorithm[Any], participation: float, tmp_path: Path
) -> None:
    experiment = replace(EXPERIMENT, algorithm=method, participation=participation, rounds=3)
    runs, others = folders(tmp_path / "a", experiment), folders(tmp_path / "b", experiment)
    together(runs)
    alone(others)
    for run, other in zip(runs, others, strict=True):
        found, expected = (load_file(each.file("checkpoint.safetensors")) for each in (run, other))
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        assert [r.untimed() for r in run.records()] == [r.untimed() for r in other.records()]


@pytest.mark.parametrize(
    ("work", "joins"),
    [
        (LOCAL, True),
        (Gradient(batch_size=5), False),
        (TrainAndGradient(LOCAL), False),
        (replace(LOCAL, optimizer=Adam()), False),
        (LocalTraining(steps=1), False),
        (Halved(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_one_model_for_all_is_joined_only_for_work_that_has_the_same_bits(
    work: Work, joins: bool
) -> None:
    one = Rows(torch.zeros(1, 4), torch.zeros(8, dtype=torch.long))
    request = Request(work, torch.arange(8), range(8), each={"theta": one})
    assert (kind_of(0, request, 12) == kind_of(1, request, 12)) == joins


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
    assert (is_faster(runs[0]) and seats(runs) is not None) == together


def test_the_chunks_of_joined_requests_change_no_results() -> None:
    """Chunks hold 32 clients: the last 8 of a run alone are all sent one model."""
    federation = blobs((6,) * 40)
    net = Net(lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    models, rows = torch.stack([net.new(1), net.new(2)]), torch.tensor([0, 1]).repeat_interleave(20)
    request = Request(Gradient(), torch.arange(40), range(40), each={"theta": Rows(models, rows)})
    few = partial(Vectorised, net, memory_mb=0.08)
    expected = few(federation).send(request).columns["gradient"]
    found = list[Tensor]()
    MeetingPoint(few(joined([federation] * 2)), [0, 40], 6).drive(
        [lambda seat: found.append(seat.send(request).columns["gradient"])] * 2
    )
    sizes = [len(chunk) for chunk in few(federation).chunks(request)]
    assert sizes == [32, 8]
    assert all(torch.equal(gradient, expected) for gradient in found)


def test_runs_that_stopped_in_different_rounds_go_on_together(tmp_path: Path) -> None:
    runs, others = folders(tmp_path / "a", EXPERIMENT), folders(tmp_path / "b", EXPERIMENT)
    alone(runs[:1])
    list(islice(execute(runs[1], Sources.default()), 4))
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


def test_the_seconds_of_runs_side_by_side_add_up_to_those_that_passed(tmp_path: Path) -> None:
    runs, began = folders(tmp_path, EXPERIMENT), perf_counter()
    together(runs)
    passed = perf_counter() - began
    assert 0 < sum(record.seconds for run in runs for record in run.records()) < passed


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


@dataclass
class Noting:
    """An engine that answers nothing, and notes how many clients it is asked for at a time."""

    asked: list[int] = field(default_factory=list)

    def send(self, request: Request) -> Replies:
        self.asked.append(len(request.clients))
        return Replies(request.clients, {})

    def chunks(self, request: Request) -> Iterator[Tensor]:
        yield torch.arange(len(request.clients))


@pytest.mark.parametrize(
    ("clients", "values", "shared", "asked"),
    [
        ((2, 3), 10, False, [32]),
        ((17, 15), 10, False, [48]),
        ((2, 3), 10, True, [2, 3]),  # the same for all of a run's clients
        ((2, 1, 4), 10, False, [32, 1]),  # one client alone
        ((2, 3, 9), 50_000, False, [2, 3, 9]),  # most of it would be padding
        ((9, 16), 50_000, False, [9, 16]),
        ((16, 32), 50_000, False, [48]),
    ],
)
def test_runs_are_computed_together_where_each_begins_at_a_row_that_is_aligned(
    clients: tuple[int, ...], values: int, shared: bool, asked: list[int]
) -> None:
    theta = torch.ones(1, values)
    requests = {
        number: Request(
            LOCAL,
            torch.arange(count),
            [7] * count,
            {"models": theta} if shared else {},
            {"theta": Rows(theta, torch.zeros(count, dtype=torch.long))},
        )
        for number, count in enumerate(clients)
    }
    engine = Noting()

    def ask(number: int, seat: Engine) -> None:
        assert len(seat.send(requests[number]).clients) == len(requests[number].clients)

    MeetingPoint(engine, [0, 10, 20][: len(clients)], 64).drive(
        [partial(ask, number) for number in requests]
    )
    assert engine.asked == asked


def test_an_error_that_no_other_setting_cures_is_told_first() -> None:
    def too_few(_: Engine) -> None:
        raise QuorumError("too few")

    def broken(_: Engine) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full") as raised:
        MeetingPoint(Noting(), [0, 3], 64).drive([too_few, broken])
    assert raised.value.__notes__ == ["beside it, in another run: QuorumError('too few')"]
    with pytest.raises(QuorumError, match=r"^too few\ntoo few$"):
        MeetingPoint(Noting(), [0, 3], 64).drive([too_few, too_few])


def test_where_threads_are_few_no_run_is_begun_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs, start, left = folders(tmp_path, EXPERIMENT), threading.Thread.start, [1]

    def few(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", few)
    before = threading.active_count()
    assert not execute_together(runs, Sources.default(), print)
    assert threading.active_count() == before
    assert not any(run.begun for run in runs)
    assert caplog.messages == ["the runs go one after another: can't start new thread"]


def test_more_runs_than_a_system_has_files_for_are_not_side_by_side(tmp_path: Path) -> None:
    some = [RunFolder(tmp_path / str(number)) for number in range(MOST_RUNS_TOGETHER + 1)]
    assert not execute_together(some, Sources.default(), print)
    assert not list(tmp_path.iterdir())
