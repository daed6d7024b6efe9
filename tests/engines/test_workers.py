"""However many processes compute, the replies are the same, bit for bit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.algorithms.test_contract import CASES, by_name, last_state, make_run
from tests.engines.test_equality import WORKS, request
from tests.processes import ended, start, wait_until_gone
from umbel.checks import UsageError, WorkersDiedError
from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work import LocalTraining, MeanLoss, Promise, Work
from umbel.engines import EngineSettings, Sequential, Vectorised, choice, make_engine
from umbel.engines.processes import workers
from umbel.engines.processes.crew import Crew
from umbel.engines.processes.workers import Workers, can_fork
from umbel.flow import Replies, Request
from umbel.testing import assert_same_state, blobs, mlp

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system does not fork processes")


@pytest.fixture(autouse=True)
def any_work_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PAYS", 1e-9)


def assert_identical(found: Replies, expected: Replies) -> None:
    assert found.clients.tolist() == expected.clients.tolist()
    assert set(found.columns) == set(expected.columns)
    for name, column in expected.columns.items():
        assert found.columns[name].dtype == column.dtype, name
        torch.testing.assert_close(
            found.columns[name], column, rtol=0, atol=0, equal_nan=True, msg=name
        )


@pytest.mark.long
@pytest.mark.parametrize("work", WORKS, ids=str)
def test_replies_do_not_depend_on_the_number_of_workers(work: Work) -> None:
    net, federation = mlp(dtype=torch.float32), blobs()
    asked = request(work, net, [0, 1, 2, 3, 5])
    engines: list[Sequential | Vectorised] = [
        Sequential(net.using("in-place"), federation),
        Vectorised(net.using("dense"), federation, memory_mb=1e-6),
    ]
    for engine in engines:
        expected = engine.send(asked)
        for count in (1, 3):
            assert_identical(Workers(engine, count).send(asked), expected)


@pytest.mark.parametrize("name", by_name(CASES))
def test_states_do_not_depend_on_the_number_of_workers(name: str) -> None:
    def state(count: int) -> object:
        return last_state(
            make_run(CASES[name], engine=EngineSettings(device="cpu", workers=count)), 3
        )

    assert_same_state(state(3), state(1))


@dataclass(frozen=True)
class Dies(Work):
    """Ends the process that works for client 2 unless it is this one, as long as told to."""

    parent: int
    folder: str
    times: int

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002
        size = int(shard.num_examples)
        at_it = os.getpid() != self.parent
        before = len(list(Path(self.folder).iterdir()))
        if at_it and before < self.times:
            (Path(self.folder) / str(before)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        while not at_it and before < min(self.times, 1):
            before = len(list(Path(self.folder).iterdir()))
        return {"size": torch.tensor(size)}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:  # noqa: ARG002
        return {"size": Promise((), torch.int64)}


def test_clients_of_a_worker_that_dies_are_asked_again(tmp_path: Path) -> None:
    net, federation = mlp(), blobs()
    engine = Workers(Sequential(net, federation), 2)
    work = Dies(os.getpid(), str(tmp_path), times=1)
    replies = engine.send(Request(work, torch.arange(4), [0] * 4))
    assert replies.columns["size"].tolist() == federation.train.sizes[:4].tolist()


def test_clients_that_end_every_worker_are_named(tmp_path: Path) -> None:
    engine = Workers(Sequential(mlp(), blobs()), 2)
    work = Dies(os.getpid(), str(tmp_path), times=1000)
    said = r"^clients of numbers \d: .* died \(signal 9\).* memory is short.* engine.workers = 1"
    with pytest.raises(WorkersDiedError, match=said):
        engine.send(Request(work, torch.arange(4), [0] * 4))


def test_little_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PAYS", 1e9)
    engine = Workers(Sequential(mlp(), blobs()), 3)
    asked = request(MeanLoss(), mlp(), [0, 1, 2])
    engine.send(asked)  # nobody knows how long this takes
    monkeypatch.setattr(workers.Workers, "_together", None)
    engine.send(asked)


@dataclass
class Settings:
    """A network, and whether "auto" spreads its clients over processes."""

    module: nn.Module
    spread: bool
    shape: tuple[int, ...] = field(default=(6,))


KINDS = {
    "dense": Settings(nn.Linear(6, 3), False),
    "convolution": Settings(
        nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 3, 6), nn.Flatten()), True
    ),
    "normalised": Settings(nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 3)), True),
}


@dataclass(frozen=True)
class Breaking(Work):
    """Promises a score, and gives something else."""

    kind: str

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002
        score = shard.num_examples.double()
        given = {"shape": score.reshape(1), "type": score.long(), "type of float": score.float()}
        columns = {"score": given.get(self.kind, score)}
        replies = {"missing": {}, "another": {**columns, "more": score}}
        return replies.get(self.kind, columns)

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:  # noqa: ARG002
        return {"score": Promise((), torch.float64)}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", ["missing", "another", "shape", "type"])
def test_work_that_breaks_its_promise_is_named(kind: str, count: int) -> None:
    engine = Workers(Sequential(mlp(), blobs()), count)
    asked = Request(Breaking(kind), torch.arange(3), [0, 0, 0])
    with pytest.raises(
        UsageError, match=r"^Breaking: .* instead of .*, which its `promises` states"
    ):
        engine.send(asked)
    asked = replace(asked, work=Breaking("type of float"))
    assert engine.send(asked).columns["score"].dtype == torch.float64


@pytest.mark.parametrize("name", KINDS)
def test_auto_takes_a_process_a_core_but_for_batched_dense_chains(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    monkeypatch.setattr(choice, "cores", lambda: 8)
    kind = KINDS[name]
    net = Net(lambda: kind.module)
    engine = make_engine(net, blobs(), EngineSettings(device="cpu"))
    assert isinstance(engine, Workers) == kind.spread
    if isinstance(engine, Workers):
        assert engine.count == 5
    explicit = make_engine(net, blobs(), EngineSettings(device="cpu", workers=2))
    assert isinstance(explicit, Workers)


@pytest.mark.parametrize("count", [0, -1, 1.5, "many"])
def test_a_number_of_workers_is_whole_and_positive(count: object) -> None:
    with pytest.raises(umbel.UsageError, match=r"workers: .* is not"):
        EngineSettings(workers=count)  # type: ignore[arg-type]


def test_a_request_to_nobody_has_no_replies() -> None:
    engine = Workers(Sequential(mlp(), blobs()), 2)
    asked = request(LocalTraining(), mlp(), [0]).pick(torch.arange(0))
    assert engine.send(asked).columns["update"].shape == (0, mlp().layout.num_values)


def busy(folder: Path) -> None:
    """A crew that is never done, in a process that tests kill; notes who is at work."""

    def do(_: int) -> None:
        (folder / str(os.getpid())).touch()
        x = torch.randn(200, 200)
        while True:
            x = torch.tanh(x @ x)

    torch.set_num_threads(1)
    Crew(do, 3, 3).run()


@pytest.mark.parametrize("killed_by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_the_process_that_forked_them(tmp_path: Path, killed_by: int) -> None:
    process = start(busy, tmp_path)
    assert process.pid is not None
    while len(at_work := [int(file.name) for file in tmp_path.iterdir()]) < 3:
        assert process.is_alive()
        time.sleep(0.001)
    os.kill(process.pid, killed_by)
    ended(process)
    wait_until_gone(at_work)
