"""A node that lies, breaks its messages, or never has enough: the run goes on without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo

from tests.algorithms.test_contract import LOCAL
from tests.flower.attacks import FORGETFUL, GREETINGS, NO_CLASSES, REPLIES, Attack
from tests.flower.grid import MemoryGrid
from tests.flower.small import SMALL, clients, engine_of, fated, grid_of, site
from umbel.algorithms import FedAvg, FedEM
from umbel.algorithms.base import State
from umbel.checks import is_plain
from umbel.client.work import (
    MEMORY,
    Evaluation,
    LocalTraining,
    MeanLoss,
    PersonalEvaluation,
    PrincipalVectors,
    Work,
)
from umbel.data.federation import Federation
from umbel.data.form import Form
from umbel.data.sources import Sources
from umbel.flow import Request, Rows
from umbel.flower import Settings, messages, serve
from umbel.flower.client import Node
from umbel.flower.client_owners import Owners
from umbel.flower.discovery import Meeting
from umbel.flower.errors import LONGEST_REASON, RefusedError
from umbel.flower.exchange import HELLO, WORK
from umbel.flower.expected_form import Expectation, model_name
from umbel.flower.handshake import SiteForm
from umbel.flower.limits import NodeLimits
from umbel.flower.messages import Asked, answer_in
from umbel.result.run import Experiment
from umbel.testing import assert_same_state

EVERYONE = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=1)


def hostile(app: ClientApp, kind: str, attack: Attack) -> ClientApp:
    """An app whose answers to messages of this kind are attacks."""

    def attacking(message: Message, context: Context) -> Message:
        reply = app(message, context)
        if message.metadata.message_type == kind:
            reply = Message(attack(reply.content), reply_to=message)
        return reply

    return attacking  # type: ignore[return-value]


def attacked(folder: Path, kind: str, attack: Attack, experiment: Any = EVERYONE) -> MemoryGrid:
    """Three nodes, of which the second attacks."""
    grid = grid_of(experiment, folder)
    second = list(grid.apps)[1]
    grid.apps = {**grid.apps, second: hostile(grid.apps[second], kind, attack)}
    return grid


@pytest.fixture(scope="module")
def without_the_node(tmp_path_factory: pytest.TempPathFactory) -> State:
    """The state after a round in which the node that attacks says nothing."""
    state, _, _ = fated(tmp_path_factory.mktemp("silent"), {1: "silent"})
    return state


@pytest.mark.parametrize("attack", REPLIES.values(), ids=REPLIES)
def test_a_reply_that_can_not_be_used_is_refused_and_the_others_are_used(
    attack: Attack, tmp_path: Path, without_the_node: State
) -> None:
    grid = attacked(tmp_path, WORK, attack)
    run = replace(EVERYONE.open(Sources.default()), engine=engine_of(grid))
    ((state, record),) = run.rounds(1)
    assert set(record.refused) == {1, 4, 7}
    why = record.refused[1].removeprefix("evaluation: ")
    assert why.startswith(("node 993: ", "num_examples: ", "update: ", "loss: "))
    assert is_plain(why)
    assert len(why) < LONGEST_REASON + 30
    assert_same_state(state, without_the_node)
    assert grid.asked.count(WORK) == 3 + 3  # a round, and an evaluation


@pytest.mark.parametrize("attack", GREETINGS.values(), ids=GREETINGS)
def test_a_site_that_can_not_be_is_left_out(attack: Attack, tmp_path: Path) -> None:
    grid = attacked(tmp_path, HELLO, attack)
    owners = Owners()
    meeting = Meeting(grid, 5.0, expect=Expectation(EVERYONE), owners=owners)
    assert sorted(meeting.gather(5, 0.6)) == ["0", "2", "3", "5", "6"]
    assert meeting.left_out == {993}
    assert owners.refused["node 993"].startswith("left out: ")
    assert grid.asked.count(HELLO) == 3


def test_a_node_that_always_forgets_is_asked_again_once(tmp_path: Path) -> None:
    experiment = replace(EVERYONE, algorithm=FedEM(local=LOCAL), rounds=4, evaluate_every=4)
    answers: list[RecordDict] = []

    def forget(content: RecordDict) -> RecordDict:
        answers.append(content)
        return content if len(answers) <= 2 else FORGETFUL(content)

    grid = attacked(tmp_path, WORK, forget, experiment)
    run = replace(experiment.open(Sources.default()), engine=engine_of(grid))
    *_, (_, record) = run.rounds(4)
    assert record.refused[1].endswith("node 993: it is not here")
    # Nothing of it is kept after that, and so all is sent.
    assert (grid.asked.count(WORK) - 1) / 3 == len(answers) - 1


@dataclass
class Broken(MemoryGrid):
    """Flower itself can't decode what comes from one of the nodes."""

    broken: int = 0

    def pull_messages(self, message_ids: Any) -> list[Message]:
        replies = super().pull_messages(message_ids)
        if any(reply.metadata.src_node_id == self.broken for reply in replies):
            raise KeyError("arraychunk_ids")
        return replies


def test_what_flower_can_not_decode_is_refused_without_the_others(tmp_path: Path) -> None:
    grid = grid_of(EVERYONE, tmp_path)
    engine = engine_of(grid)
    engine.meeting.grid = Broken(grid.apps, grid.configs, broken=993)
    ((_, record),) = replace(EVERYONE.open(Sources.default()), engine=engine).rounds(1)
    why = "node 993: not a message: KeyError: 'arraychunk_ids'"
    assert record.refused == dict.fromkeys((1, 4, 7), why)


def answered(status: int) -> httpx.HTTPStatusError:
    """What Flower's grid raises for an answer of this HTTP status."""
    request = httpx.Request("POST", "http://superlink/pull-messages")
    response = httpx.Response(status, request=request)
    return httpx.HTTPStatusError(f"{status} from the SuperLink", request=request, response=response)


@dataclass
class Interrupted(MemoryGrid):
    """The SuperLink answers nothing the first times that replies are pulled."""

    error: Exception = field(default_factory=ConnectionError)
    pulls: int = 0

    def get_node_ids(self) -> list[int]:
        if 0 < self.pulls <= 2:
            raise self.error
        return super().get_node_ids()

    def pull_messages(self, message_ids: Any) -> list[Message]:
        self.pulls += 1
        if self.pulls <= 2:
            raise self.error
        return super().pull_messages(message_ids)


@pytest.mark.parametrize("error", [ConnectionError("reset"), answered(503)])
def test_replies_are_looked_for_again_where_the_superlink_does_not_answer_once(
    error: Exception, tmp_path: Path
) -> None:
    grid = grid_of(EVERYONE, tmp_path)
    engine = engine_of(grid)
    engine.meeting.grid = interrupted = Interrupted(grid.apps, grid.configs, error=error)
    ((_, record),) = replace(EVERYONE.open(Sources.default()), engine=engine).rounds(1)
    assert interrupted.pulls > 2
    assert (record.missing, record.refused) == ((), {})


def test_clients_that_their_node_leaves_out_are_refused_with_the_reason(tmp_path: Path) -> None:
    grid = grid_of(EVERYONE, tmp_path)
    engine = engine_of(grid)
    whole = messages.answer_in

    def partly(*asked: Any) -> Any:
        found = whole(*asked)
        columns = {name: rows[:-1] for name, rows in found.columns.items()}
        facts = {name: found.facts[name] for name in found.clients[:-1]}
        return replace(found, clients=found.clients[:-1], columns=columns, facts=facts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "answer_in", partly)
        ((_, record),) = replace(EVERYONE.open(Sources.default()), engine=engine).rounds(1)
    assert not record.missing
    assert len(record.refused) == len(grid.apps)
    assert all("left out of its node's answer" in why for why in record.refused.values())


# Whose a client is


@dataclass
class Keyed(MemoryGrid):
    """Nodes have keys."""

    keys: Callable[[int], bytes] = lambda node: f"key of {node}".encode()

    def get_nodes(self) -> list[NodeInfo]:
        return [NodeInfo(node_id=n, public_key=self.keys(n)) for n in self.get_node_ids()]


def test_a_name_stays_with_the_node_that_brought_it_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL))
    grid = site(tmp_path, clients(["a", "b"]), clients(["c"]), clients(["a", "b", "c"]))
    thief, grid.apps = {3: grid.apps[3]}, {n: grid.apps[n] for n in (1, 2)}
    settings = Settings(3, patience=5, runs_dir=str(tmp_path / "runs"))
    honest = serve(grid, experiment, replace(settings, runs_dir=str(tmp_path / "honest")))
    grid.asked.clear()

    class Later(MemoryGrid):
        def push_messages(self, messages: Any) -> list[str]:
            if self.asked.count(WORK) > 2:
                self.apps = {**self.apps, **thief}
            return super().push_messages(messages)

    folder = serve(Later(grid.apps, grid.configs), experiment, settings)
    said = "clients 'a', 'b', 'c' are another node's, which brought the name first"
    assert [line for line in caplog.messages if "node 3" in line] == [f"node 3: {said}"]
    assert [r.untimed() for r in folder.records()] == [r.untimed() for r in honest.records()]
    kept = Owners.read(folder.file("nodes.json"), 60.0)
    assert kept.clients == {"a": "node 1", "b": "node 1", "c": "node 2"}
    assert kept.refused == {"node 3": said}


def test_who_claims_a_client_whose_node_is_gone_is_named_in_the_record(tmp_path: Path) -> None:
    grid = site(tmp_path, clients(["a"]), clients(["b"]), clients(["b"]))
    thief, grid.apps = {3: grid.apps[3]}, {n: grid.apps[n] for n in (1, 2)}
    engine = engine_of(grid, wanted=2)
    both = clients(["a", "b"])
    rounds = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0).run(both, engine).rounds(3)
    next(rounds)
    grid.apps = {1: grid.apps[1], **thief}
    _, record = next(rounds)
    said = "node 3: brings this client, which another node brought first"
    assert record.refused == {1: said}
    engine.meeting.owners.release_after = 0.0  # as if the time were over
    _, record = next(rounds)
    assert not record.refused
    assert engine.nodes == {"a": 1, "b": 3}


def test_with_keys_a_name_is_kept_for_its_key_whatever_the_number_of_the_node(
    tmp_path: Path,
) -> None:
    plain = site(tmp_path, clients(["a"]), clients(["b"]), clients(["a"]))
    first = Keyed({n: plain.apps[n] for n in (1, 2)}, plain.configs)
    settings = Settings(2, patience=5, runs_dir=str(tmp_path / "runs"), release_after=float("inf"))
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL))
    folder = serve(first, experiment, settings)
    folder.file("clusters.csv").unlink()  # as if it had been stopped just before
    # The SuperLink lost its database: all numbers are new, and a thief was faster.
    apps = {3: plain.apps[3], 11: plain.apps[1], 12: plain.apps[2]}
    configs = {key: {"memory-dir": str(tmp_path)} for key in apps}
    second = Keyed(apps, configs, keys=lambda node: f"key of {node % 10}".encode())
    serve(second, experiment, settings)
    owners = Owners.read(folder.file("nodes.json"), 60.0)
    assert len(set(owners.clients.values())) == 2
    assert list(owners.refused.values()) == [
        "client 'a' is another node's, which brought the name first"
    ]


def test_two_nodes_with_one_client_are_told_of_and_the_first_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    meeting = Meeting(site(tmp_path, clients(["a"]), clients(["a", "b"])), 5.0)
    assert meeting.gather(2, 0.6) == {"a": 1, "b": 2}
    assert caplog.messages == ["node 2: client 'a' is another node's, which brought the name first"]


def test_a_damaged_file_of_owners_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text('{"clients": []}')
    with pytest.raises(ValueError, match=r"nodes.json: damaged"):
        Owners.read(tmp_path / "nodes.json", 60.0)


# Which form sites have


def other() -> Federation:
    rng = np.random.default_rng(0)
    shard = rng.random((20, 32), dtype=np.float32), rng.integers(0, 10, 20)
    return Federation.from_arrays([shard] * 9, names=[f"x{n}" for n in range(9)], num_classes=10)


def test_the_first_node_does_not_decide_on_the_form(tmp_path: Path) -> None:
    grid = site(tmp_path, other(), clients(["a"]), clients(["b"]))
    settings = Settings(2, patience=5, runs_dir=str(tmp_path / "runs"))
    assert [c.name for c in serve(grid, SMALL_ALL, settings).clients()] == ["a", "b"]


SMALL_ALL = replace(SMALL, algorithm=FedAvg(LOCAL), rounds=1)


@pytest.mark.parametrize(
    ("objective", "outputs", "fit", "unfit"),
    [
        ("auto", 10, [10], [None, 9]),
        ("binary", 10, [None, 1, 2], []),
    ],
)
def test_what_targets_are_is_settled_by_both_settings_and_the_objective(
    objective: Any, outputs: int, fit: list[int | None], unfit: list[int | None]
) -> None:
    experiment = replace(EVERYONE, objective=objective)
    expect = Expectation(experiment, (64,), outputs)
    net = experiment.net_of(Form(input_shape=(64,), num_outputs=outputs, num_classes=outputs))
    form = SiteForm(input_shape=(64,), num_outputs=outputs, num_classes=None, model=model_name(net))
    assert len({expect(replace(form, num_classes=classes)) for classes in fit}) == 1
    for classes in unfit:
        with pytest.raises(RefusedError, match=f"{classes or 'no'} classes and {outputs} outputs"):
            expect(replace(form, num_classes=classes))


def test_nodes_that_leave_their_classes_out_do_not_outvote_an_honest_one(tmp_path: Path) -> None:
    grid = site(tmp_path, *(clients([name]) for name in "abc"))
    liars = {node: hostile(grid.apps[node], HELLO, NO_CLASSES) for node in (1, 2)}
    grid.apps = {**grid.apps, **liars}
    settings = Settings(1, patience=5, runs_dir=str(tmp_path / "runs"))
    folder = serve(grid, SMALL_ALL, replace(settings, input_shape="64", outputs=10))
    assert [c.name for c in folder.clients()] == ["c"]


def test_yes_and_no_are_alike_as_whole_numbers_and_as_others(tmp_path: Path) -> None:
    def answers(name: str, kind: Any) -> Federation:
        rng = np.random.default_rng(0)
        return Federation.from_arrays(
            [(rng.random((20, 64), dtype=np.float32), (np.arange(20) % 2).astype(kind))],
            names=[name],
        )

    experiment = replace(SMALL_ALL, objective="binary")
    grid = site(tmp_path, answers("a", np.int64), answers("b", np.float32), of=experiment)
    folder = serve(grid, experiment, Settings(2, patience=5, runs_dir=str(tmp_path / "runs")))
    assert [c.name for c in folder.clients()] == ["a", "b"]
    (record,) = folder.records()
    assert not record.refused


def test_where_no_form_is_that_of_most_the_settings_decide(tmp_path: Path) -> None:
    grid = site(tmp_path, other(), clients(["a"]))
    settings = Settings(1, patience=0.6, runs_dir=str(tmp_path / "runs"))
    with pytest.raises(
        ValueError, match="choose one by the settings input-shape and outputs, which leaves out"
    ):
        serve(grid, SMALL_ALL, settings)
    folder = serve(grid, SMALL_ALL, replace(settings, input_shape="64", outputs=10))
    assert [c.name for c in folder.clients()] == ["a"]


# What a node does


def node(tmp_path: Path, experiment: Experiment = SMALL_ALL) -> Node:
    return Node.of(experiment, clients(["a"]), tmp_path / "memory.safetensors")


def test_clients_that_are_gone_are_refused_alone(tmp_path: Path) -> None:
    federation = clients(["a", "b", "c"])
    whole, here = (
        Node.of(SMALL_ALL, each, tmp_path / "memory.safetensors")
        for each in (federation, federation.pick([0, 2]))
    )
    theta = here.net.new(seed=0)[None].repeat(3, 1)
    theta[1:] *= torch.tensor([[2.0], [3.0]])
    index = {"theta": [2, 1, 0]}
    asked = Asked(LocalTraining(), ["c", "b", "a"], [5, 6, 7], {}, {"theta": theta}, index)
    found, expected = (one.work(asked, NodeLimits()) for one in (here, whole))
    some, every = (answer_in(r, ["update", "num_examples"], 10**8) for r in (found, expected))
    assert some.refused == {"b": "its data are no longer at this node, or can't be read there"}
    assert some.clients == ["c", "a"]
    rows = [every.clients.index(name) for name in some.clients]
    torch.testing.assert_close(some.columns["update"], every.columns["update"][rows])


def test_a_node_with_none_of_the_clients_or_with_one_twice_refuses_it_all(tmp_path: Path) -> None:
    here = node(tmp_path)
    theta = here.net.new(seed=0)[None]
    unfit = {"b c": "'b': its data are no longer", "a a": "'a' is asked for twice"}
    for names, why in unfit.items():
        index = {"theta": [0, 0]}
        asked = Asked(LocalTraining(), names.split(), [0, 1], {}, {"theta": theta}, index)
        with pytest.raises(RefusedError, match=f"client {why}"):
            here.work(asked, NodeLimits())


LONG: dict[str, tuple[Work, str]] = {
    "epochs": (LocalTraining(epochs=10**6), "takes 1000000 steps, more than the 500000"),
    "directions": (PrincipalVectors(1, 64, num_classes=10**7), "bytes"),
}


@pytest.mark.parametrize(("work", "why"), LONG.values(), ids=LONG)
def test_a_request_that_would_take_too_much_is_refused_before_any_work(
    work: Work, why: str, tmp_path: Path
) -> None:
    here = node(tmp_path)
    theta = here.net.new(seed=0)[None]
    asked = Asked(work, ["a"], [0], {}, {"theta": theta}, {"theta": [0]})
    limits = NodeLimits.of({"max-steps": 500_000, "max-examples": 5_000_000})
    with pytest.raises((RefusedError, ValueError), match=why):
        here.work(asked, limits)


def test_few_numbers_that_ask_for_many_models_are_refused(tmp_path: Path) -> None:
    here = node(tmp_path)
    theta = here.net.new(seed=0)[None]
    shared, kept = {"shares": torch.zeros(10_000, 1)}, theta[None]
    clients = torch.tensor([0])
    each = {"theta": Rows(theta, clients), MEMORY: Rows(kept, clients)}
    request = Request(PersonalEvaluation("test"), clients, [0], shared, each)
    with pytest.raises(RefusedError, match=r"bytes, more than the 1000000 that this node allows"):
        NodeLimits(max_bytes=10**6).check(request, here.federation)


def test_work_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    here = node(tmp_path)
    theta = here.net.new(seed=0)[None]
    asked = Asked(LocalTraining(epochs=900_000), ["a"], [0], {}, {"theta": theta}, {"theta": [0]})
    with pytest.raises(RefusedError, match=r"not done within the 0\.5 seconds allowed here"):
        here.work(asked, NodeLimits(max_seconds=0.5))


def test_so_is_a_metric_of_the_site_that_takes_too_long(tmp_path: Path) -> None:
    name = "tests.flower.own_work:endless"
    here = node(tmp_path, replace(SMALL_ALL, metrics=(name,)))
    theta = here.net.new(seed=0)[None]
    work = Evaluation(metrics=(name,))
    asked = Asked(work, ["a"], [0], {}, {"theta": theta}, {"theta": [0]})
    with pytest.raises(RefusedError, match=r"^not done within the 0\.5 seconds allowed here$"):
        here.work(asked, NodeLimits(max_seconds=0.5))


def test_an_ordinary_request_is_within_the_limits(tmp_path: Path) -> None:
    here = node(tmp_path)
    theta = here.net.new(seed=0)[None]
    for work in LocalTraining(epochs=100), MeanLoss(), PrincipalVectors(3, 64, num_classes=10):
        models = {} if isinstance(work, LocalTraining) else {"models": theta}
        asked = Asked(work, ["a"], [0], models, {"theta": theta}, {"theta": [0]})
        here.work(asked, NodeLimits())


def test_a_node_refuses_a_server_of_another_version(tmp_path: Path) -> None:
    app = site(tmp_path, clients(["a"])).apps[1]
    old = Message(RecordDict({"greeting": ConfigRecord({"version": 1})}), 1, HELLO)
    old.metadata.__dict__["_message_id"] = "x"
    reply = app(old, Context(1, 1, {"memory-dir": str(tmp_path)}, RecordDict(), {}))
    said = str(reply.content.config_records["answer"]["refused"])
    assert said.startswith("messages of version 1, but this umbel uses 2: server and nodes")
