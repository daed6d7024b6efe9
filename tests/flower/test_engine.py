"""Over Flower's messages every method comes to what it comes to in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from flwr.app import ConfigRecord, Context, RecordDict

from tests.algorithms.test_contract import CASES, LOCAL, by_name
from tests.flower.grid import ERRORS, MemoryGrid
from umbel.algorithms import FLACC, FedAvg, FedEM, PFedMe, Sattler
from umbel.algorithms.base import Algorithm, State
from umbel.checks import UsageError
from umbel.cli import app
from umbel.client.work import MeanLoss
from umbel.data.federation import Federation
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.engines.privacy import Privacy
from umbel.engines.wrappers import QuorumError
from umbel.flow import Request
from umbel.flower import FlowerEngine, Settings, client_app, serve, slice_of
from umbel.flower.client import Load
from umbel.flower.discovery import Meeting
from umbel.flower.greeting import name_in
from umbel.flower.limits import NodeLimits
from umbel.flower.owners import Owners
from umbel.flower.refusals import RefusedError
from umbel.flower.registry import Roll
from umbel.networks import MLP, Linear
from umbel.runs import descriptions
from umbel.runs.config import write
from umbel.runs.execution import execute
from umbel.runs.experiment import Experiment
from umbel.runs.folder import RunFolder
from umbel.runs.personal import Personal
from umbel.runs.result import Result
from umbel.runs.seals import json_text
from umbel.testing import assert_same_state

SMALL = Experiment(
    replace(ROTATED_DIGITS, clients=8, examples=(20, 40)),
    MLP((8,)),
    FLACC(LOCAL, n_sep=2),
    name="small",
    rounds=4,
    participation=0.75,
)


def grid_of(experiment: Experiment, folder: Path, nodes: int = 3) -> MemoryGrid:
    """Nodes that share the clients of the experiment's scenario."""
    folder.mkdir(exist_ok=True)
    file = folder / "experiment.toml"
    file.write_text(write(experiment))

    def load(context: Context, settings: Experiment) -> Federation:
        return slice_of(context, settings.scenario.build(settings.seed, Sources.default()))

    # The ids of nodes say nothing about their clients.
    apps = {1000 - 7 * n: client_app(file, load) for n in range(nodes)}
    configs: dict[int, dict[str, Any]] = {
        node: {"partition-id": n, "num-partitions": nodes, "memory-dir": str(folder)}
        for n, node in enumerate(apps)
    }
    return MemoryGrid(apps, configs)


def engine_of(
    grid: MemoryGrid, time_limit: float = 0.5, wanted: int = 8, release_after: float = 60.0
) -> FlowerEngine:
    meeting = Meeting(grid, time_limit, owners=Owners(release_after=release_after))
    nodes = meeting.gather(wanted, 5.0)
    return FlowerEngine(meeting, Roll.call(nodes, meeting.sites).names, nodes, time_limit)


def last_state(experiment: Experiment, grid: MemoryGrid | None) -> State:
    run = experiment.open(Sources.default())
    if grid is not None:
        run = replace(run, engine=engine_of(grid))
    *_, (state, _) = run.rounds(experiment.rounds)
    return state


@pytest.mark.parametrize("name", by_name(CASES))
def test_the_same_clusters_and_models_as_in_this_process(name: str, tmp_path: Path) -> None:
    algorithm = CASES[name]
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


def test_a_request_is_one_message_a_node_however_large_models_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umbel.engines.wrappers.BLOCK_BYTES", 1)
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=1)
    grid = grid_of(experiment, tmp_path)
    last_state(experiment, grid)
    assert grid.asked.count("query.work") == 3 * (1 + 1)  # a round and an evaluation


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
    folder = serve(grid_of(SMALL, tmp_path), SMALL, replace(settings, describe=True))
    kept = descriptions.load(folder.path)
    assert kept is not None
    run = SMALL.open(Sources.default())
    here = descriptions.described(run, run.net, SMALL.seed, run.federation.num_outputs)
    torch.testing.assert_close(kept.table, here.table, rtol=1e-5, atol=1e-6)
    assert kept.clients.tolist() == list(range(8))


def test_clients_with_privacy_are_not_asked_to_describe_their_inputs(tmp_path: Path) -> None:
    private = replace(SMALL, algorithm=FedAvg(LOCAL), privacy=Privacy(clip=1.0))
    settings = Settings(8, runs_dir=str(tmp_path / "runs"), describe=True)
    grid = grid_of(private, tmp_path)
    with pytest.raises(UsageError, match=r"describe: True is not false with \[privacy\]"):
        serve(grid, private, settings)
    assert not grid.asked


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"clients": "abc"}, "clients: 'abc' is not a whole number"),
        ({"clients": 2.5}, "clients: 2.5 is not a whole number"),
        ({"clients": -1}, "clients: -1 is not 0 or more"),
        ({"patience": "soon"}, "patience: 'soon' is not a number"),
        ({"time-limit": "nan"}, "time-limit: nan is not more than 0"),
        ({"release-after": "never"}, "release-after: 'never' is not a number"),
        ({"outputs": "ten"}, "outputs: 'ten' is not a whole number"),
        ({"input-shape": "28x28"}, "input-shape: '28x28' is not whole numbers of 1 or more, as in"),
        ({"input-shape": "0 28"}, "input-shape: '0 28' is not whole numbers of 1 or more, as in"),
        ({"describe": "perhaps"}, "describe: 'perhaps' is not true or false"),
    ],
)
def test_a_setting_of_a_run_that_can_not_be_is_named(config: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        Settings.of(config)
    assert str(refused.value).startswith(message)


def test_settings_of_a_run_may_be_numbers_or_text() -> None:
    text = {"clients": "3", "patience": "0.5", "release-after": "inf", "describe": "True"}
    numbers = {"clients": 3, "patience": 0.5, "release-after": float("inf"), "describe": True}
    assert Settings.of(text) == Settings.of(numbers)
    assert Settings.of({}) == Settings()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"partition-id": 0}, "num-partitions: None is not a whole number"),
        ({"partition-id": "one", "num-partitions": 2}, "partition-id: 'one' is not a whole number"),
        ({"partition-id": 0, "num-partitions": 0}, "num-partitions: 0 is not 1 or more"),
        ({"partition-id": 2, "num-partitions": 2}, "partition-id: 2 is not in 0 to 1, as num-par"),
    ],
)
def test_a_setting_of_a_node_that_can_not_be_is_named(config: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        slice_of(Context(1, 1, config, RecordDict(), {}), clients(["a", "b"]))
    assert str(refused.value).startswith(message)


def test_a_limit_of_a_node_that_can_not_be_is_named() -> None:
    with pytest.raises(UsageError, match="max-steps: 'many' is not a whole number"):
        NodeLimits.of({"max-steps": "many"})


def fated(
    tmp_path: Path, fates: dict[int, str], quorum: float = 0.0, rounds: int = 1
) -> tuple[State, Any, FlowerEngine]:
    """One round of FedAvg with everyone, where nodes (counted from 0) have these fates."""
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=rounds)
    grid = grid_of(experiment, tmp_path)
    engine = engine_of(grid)
    ids = list(grid.apps)
    grid.fate |= {ids[n]: fate for n, fate in fates.items()}
    run = replace(experiment.open(Sources.default()), engine=engine)
    run = replace(run, limits=replace(run.limits, quorum=quorum))
    *_, (state, record) = run.rounds(rounds)
    return state, record, engine


@pytest.mark.parametrize(
    "fate", ["silent", "late", "gone", "expired", "reply expired", "dead", "killed at work"]
)
def test_clients_of_a_node_without_an_answer_are_missing(
    fate: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, record, _ = fated(tmp_path, {1: fate})
    assert record.missing == (1, 4, 7)
    assert not record.refused
    if fate in ERRORS:  # what the SuperLink knows about it is said, too
        assert f"error {ERRORS[fate]}: {fate}" in caplog.text


@pytest.mark.parametrize("fate", ["not loaded", "raised"])
def test_clients_of_a_node_that_answers_with_an_error_are_refused(
    fate: str, tmp_path: Path
) -> None:
    _, record, _ = fated(tmp_path, {2: fate})
    why = f"node 986: error {ERRORS[fate]}: {fate}"
    assert record.refused == dict.fromkeys((2, 5), why)
    assert not record.missing


def test_an_error_is_of_the_node_that_was_asked_not_of_its_sender(tmp_path: Path) -> None:
    _, record, _ = fated(tmp_path, {2: "dead"})
    assert record.missing == (2, 5)


def test_what_comes_twice_counts_once(tmp_path: Path) -> None:
    found, record, _ = fated(tmp_path, {0: "twice", 1: "twice"})
    expected, _, _ = fated(tmp_path / "other", {})
    assert_same_state(found, expected)
    assert not record.missing


def test_what_comes_late_is_not_taken_for_a_later_round(tmp_path: Path) -> None:
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=3)
    grid = grid_of(experiment, tmp_path)
    run = replace(experiment.open(Sources.default()), engine=engine_of(grid))
    late = list(grid.apps)[1]
    grid.fate[late] = "late"
    states = run.rounds(3)
    state, record = next(states)
    assert record.missing == (1, 4, 7)
    grid.fate.clear()  # from here on, the late reply comes with every other one
    found, record = next(states)
    assert not record.missing
    ((expected, _),) = experiment.open(Sources.default()).rounds(2, state, first=1)
    assert_same_state(found, expected, 1e-5)


def test_no_reply_at_all_is_no_round(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match="round 0: 0 of 8 clients gave a usable reply"):
        fated(tmp_path, {0: "silent", 1: "silent", 2: "silent"}, quorum=0.1)


def test_a_node_that_comes_back_under_another_id_is_found_again(tmp_path: Path) -> None:
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=3)
    grid = grid_of(experiment, tmp_path)
    engine = engine_of(grid, release_after=0.0)
    run = replace(experiment.open(Sources.default()), engine=engine)
    states = run.rounds(3)
    next(states)
    old = list(grid.apps)[1]
    grid.fate[old] = "gone"
    assert next(states)[1].missing == (1, 4, 7)
    grid.apps = {**grid.apps, 5: grid.apps[old]}
    grid.configs = {**grid.configs, 5: grid.configs[old]}
    assert next(states)[1].missing == ()


@pytest.mark.parametrize(
    "method", [FedEM(local=LOCAL), PFedMe(local=LOCAL)], ids=["fedem", "pfedme"]
)
def test_what_clients_keep_is_not_sent_to_them_again_but_for_those_that_lost_it(
    method: Algorithm[Any], tmp_path: Path
) -> None:
    experiment = replace(SMALL, algorithm=method, participation=1.0, evaluate_every=9)
    expected = last_state(experiment, None)
    sizes = {}
    for way in "kept", "lost":
        grid = grid_of(experiment, tmp_path / way)
        run = replace(experiment.open(Sources.default()), engine=engine_of(grid))
        for after, _ in run.rounds(experiment.rounds):
            state = after
            if way == "lost":
                for file in (tmp_path / way).glob("*.safetensors"):
                    file.unlink()
        assert_same_state(state, expected, 1e-4)
        sizes[way] = len(grid.asked)
    if isinstance(method, FedEM):  # pFedMe sends its personal models, and never asks for them
        assert sizes["lost"] > sizes["kept"]


def test_a_server_that_was_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    experiment = replace(SMALL, checkpoint_every=2)
    settings = Settings(8, patience=5, time_limit=5, runs_dir=str(tmp_path / "runs"))
    grid = grid_of(experiment, tmp_path)
    whole = serve(grid, experiment, replace(settings, runs_dir=str(tmp_path / "whole")))

    class KilledError(Exception):
        pass

    class Dying(MemoryGrid):
        def push_messages(self, messages: Any) -> list[str]:
            if self.asked.count("query.work") > 15:
                raise KilledError
            return super().push_messages(messages)

    with pytest.raises(KilledError):
        serve(Dying(grid.apps, grid.configs), experiment, settings)
    folder = RunFolder(tmp_path / "runs" / "small-seed0")
    assert folder.begun
    assert not folder.finished
    folder = serve(MemoryGrid(grid.apps, grid.configs), experiment, settings)
    assert [r.untimed() for r in folder.records()] == [r.untimed() for r in whole.records()]
    assert folder.file("clusters.csv").read_bytes() == whole.file("clusters.csv").read_bytes()


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
    assert [line[:9] for line in rounds] == ["round 1/4", "round 2/4", "round 3/4", "round 4/4"]
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


def test_nodes_have_the_time_that_clients_are_waited_for_to_say_who_is_there(
    tmp_path: Path,
) -> None:
    grid = grid_of(SMALL, tmp_path)
    settings = Settings(8, patience=5, time_limit=2, runs_dir=str(tmp_path / "runs"))
    serve(grid, SMALL, settings)
    assert grid.time_limits == {"query.hello": 5, "query.work": 2}


def test_too_few_clients_are_said_with_the_nodes_that_gave_no_answer(tmp_path: Path) -> None:
    grid = grid_of(SMALL, tmp_path)
    grid.fate[next(iter(grid.apps))] = "silent"
    settings = Settings(8, patience=0.5, runs_dir=str(tmp_path / "runs"))
    expected = r"clients: 5 is not at least 8 after 0.5 s, .*; 1 connected node gave no answer yet"
    with pytest.raises(UsageError, match=expected):
        serve(grid, SMALL, settings)


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


def clients(names: Sequence[str]) -> Federation:
    rng = np.random.default_rng(0)
    shards = [(rng.random((20, 64), dtype=np.float32), rng.integers(0, 10, 20)) for _ in names]
    return Federation.from_arrays(shards, names=names, num_classes=10)


def having(federation: Federation) -> Load:
    return lambda _context, _experiment: federation


def site(tmp_path: Path, *federations: Federation, of: Experiment = SMALL) -> MemoryGrid:
    """Nodes with these clients."""
    file = tmp_path / "experiment.toml"
    file.write_text(write(of))
    apps = {n: client_app(file, having(f)) for n, f in enumerate(federations, start=1)}
    return MemoryGrid(apps, {n: {"memory-dir": str(tmp_path)} for n in apps})


def test_sites_of_their_own_data_need_no_planted_groups(tmp_path: Path) -> None:
    grid = site(tmp_path, clients(["north", "east"]), clients(["south"]))
    settings = Settings(3, patience=5, runs_dir=str(tmp_path / "runs"))
    folder = serve(grid, replace(SMALL, algorithm=FLACC(LOCAL)), settings)
    assert [client.name for client in folder.clients()] == ["east", "north", "south"]
    assert folder.records()[-1].ari is None


def test_regressions_have_a_loss_and_no_accuracy(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((20, 3), dtype=np.float32)
    federation = Federation.from_arrays([(x, x.sum(1)), (x, -x.sum(1))])
    settings = Settings(2, patience=5, runs_dir=str(tmp_path / "runs"))
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), model=Linear(), rounds=1)
    record = serve(site(tmp_path, federation, of=experiment), experiment, settings).records()[-1]
    assert record.loss is not None
    assert record.accuracy is None
    assert not record.refused


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_examples_may_have_several_labels_that_are_there_or_not(
    labels: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((20, 3), dtype=np.float32)
    shape = (20,) if labels == 1 else (20, labels)
    federation = Federation.from_arrays([(x, rng.integers(0, 2, shape)) for _ in range(2)])
    settings = Settings(2, patience=5, runs_dir=str(tmp_path / "runs"))
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), model=Linear(), rounds=1)
    experiment = replace(experiment, objective="binary")
    record = serve(site(tmp_path, federation, of=experiment), experiment, settings).records()[-1]
    assert record.accuracy is not None
    assert not record.refused


def test_a_site_of_another_form_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    other = Federation.from_arrays(
        [(rng.random((9, 32), dtype=np.float32), rng.integers(0, 10, 9))], num_classes=10
    )
    meeting = Meeting(site(tmp_path, other, clients(["a"]), clients(["b"])), 5.0)
    assert set(meeting.gather(3, 0.6)) == {"a", "b"}
    assert meeting.left_out == {1}
    assert "node 1 is left out: input_shape is (32,), and at the other sites (64,)" in caplog.text


def test_a_node_that_comes_late_is_told_of_and_takes_no_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = site(tmp_path, clients(["a"]), clients(["b", "c"]))
    late, grid.apps = {2: grid.apps[2]}, {1: grid.apps[1]}
    engine = engine_of(grid, wanted=1)
    run = replace(SMALL, algorithm=FedAvg(LOCAL)).run(clients(["a"]), engine)
    rounds = run.rounds(3)
    next(rounds)
    grid.apps = {**grid.apps, **late}
    *_, (_, record) = rounds
    told = [line for line in caplog.messages if "came after the run began" in line]
    said = "clients 'b', 'c' are no part of it; a new run would take them in"
    assert told == [f"node 2 came after the run began: {said}"]
    assert engine.nodes == {"a": 1}
    assert record.missing == ()


def test_who_joins_between_two_sessions_of_a_run_is_told_of_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "umbel")
    grid = site(tmp_path, clients(["a"]), clients(["b"]))
    both, grid.apps = grid.apps, {1: grid.apps[1]}
    settings = Settings(1, patience=5, runs_dir=str(tmp_path / "runs"))
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL))
    folder = serve(grid, experiment, settings)
    folder.file("clusters.csv").unlink()  # as if it had been stopped just before
    caplog.clear()
    grid.apps = both
    serve(grid, experiment, settings)
    assert [client.name for client in folder.clients()] == ["a"]
    assert any("client 'b' is no part of it" in line for line in caplog.messages)
    assert any("1 clients, of whom 1 are at 1 nodes now" in line for line in caplog.messages)


def test_a_node_whose_app_does_not_load_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = site(tmp_path, clients(["a"]), clients(["b"]))
    grid.fate[2] = "not loaded"
    meeting = Meeting(grid, 5.0)
    assert meeting.gather(2, 0.6) == {"a": 1}
    said = f"node 2 is left out: error {ERRORS['not loaded']}: not loaded; it is asked again"
    assert caplog.messages == [said]


def test_a_node_that_could_not_read_its_data_at_first_takes_part_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = site(tmp_path, clients(["a"]), clients(["b"]))
    tries = []

    def load(context: Context, settings: Experiment) -> Federation:  # noqa: ARG001
        tries.append(context.node_id)
        if len(tries) == 1:
            raise OSError("the share is not mounted")
        return clients(["b"])

    grid.apps = {**grid.apps, 2: client_app(tmp_path / "experiment.toml", load)}
    meeting = Meeting(grid, 5.0)
    assert meeting.gather(2, 60) == {"a": 1, "b": 2}
    assert meeting.left_out == set()
    assert not meeting.owners.refused
    assert caplog.messages[-1] == "node 2 can work now"


def test_nodes_are_named_in_messages_as_they_call_themselves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = site(tmp_path, clients(["a"]), clients(["b"]), clients(["c"]))
    grid.configs = {1: {"site-name": "St. Mary's"}, 2: {"site-name": "north"}, 3: {}}

    def load(context: Context, settings: Experiment) -> Federation:  # noqa: ARG001
        raise OSError("the share is not mounted")

    grid.apps = {**grid.apps, 2: client_app(tmp_path / "experiment.toml", load)}
    meeting = Meeting(grid, 5.0, owners=Owners(tmp_path / "nodes.json"))
    assert meeting.gather(2, 60) == {"a": 1, "c": 3}
    assert any(said.startswith("node 2 ('north') is left out: its") for said in caplog.messages)
    assert meeting.named(1) == 'node 1 ("St. Mary\'s")'
    assert meeting.named(3) == "node 3"
    meeting.owners.write()
    known = Owners.read(tmp_path / "nodes.json", 60.0)
    assert known.names == {"node 1": "St. Mary's", "node 2": "north"}
    engine = FlowerEngine(meeting, ["a", "c"], {"a": 1, "c": 3}, 0.5)
    grid.fate[1] = "dead"
    engine.send(Request(MeanLoss(), torch.tensor([0]), [0], {"models": torch.zeros(1, 5)}))
    assert caplog.messages[-1].startswith('node 1 ("St. Mary\'s"): ')


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 201])
def test_what_people_can_not_be_shown_is_no_name_of_a_node(name: str, tmp_path: Path) -> None:
    grid = site(tmp_path, clients(["a"]))
    grid.configs = {1: {"site-name": name}}
    meeting = Meeting(grid, 5.0)
    assert meeting.gather(1, 0.1) == {}
    (why,) = meeting.owners.refused.values()
    assert why.startswith("left out: site-name: ")
    assert "is not a name: 1 to 200 characters of one line" in why


@pytest.mark.parametrize("called", [{}, {"name": 3}, {"name": "a\x1b[2J"}])
def test_a_server_refuses_names_that_are_none(called: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        name_in(RecordDict({"called": ConfigRecord(called)}))


def test_without_enough_clients_nothing_begins(tmp_path: Path) -> None:
    grid = site(tmp_path, clients(["a"]))
    settings = Settings(2, patience=0.5, runs_dir=str(tmp_path / "runs"))
    with pytest.raises(ValueError, match=r"clients: 1 is not at least 2 after 0\.5 s"):
        serve(grid, SMALL, settings)


def test_nodes_judge_rounds_on_validation_examples_though_some_have_none(tmp_path: Path) -> None:
    scenario = replace(ROTATED_DIGITS, clients=8, examples=(20, 40), validation_fraction=0.2)
    experiment = replace(SMALL, scenario=scenario)
    grid = grid_of(experiment, tmp_path / "site")

    def without(context: Context, settings: Experiment) -> Federation:
        """What a node has, without validation examples."""
        built = settings.scenario.build(settings.seed, Sources.default())
        return replace(slice_of(context, built), validation=None)

    one = next(iter(grid.apps))
    apps = {**grid.apps, one: client_app(tmp_path / "site" / "experiment.toml", without)}
    served = serve(replace(grid, apps=apps), experiment, Settings(8, runs_dir=str(tmp_path)))
    records = served.records()
    assert all(record.validation_loss is not None for record in records)
    assert [record.loss is None for record in records] == [True, True, True, False]
    assert not any(record.refused or record.missing for record in records)
    sizes = Roll.read(served.file("clients.json")).validation
    assert sizes is not None
    assert sum(size == 0 for size in sizes) == 3


def test_a_roll_without_validation_is_as_earlier_versions_wrote_it(tmp_path: Path) -> None:
    grid = grid_of(SMALL, tmp_path / "site")
    served = serve(grid, SMALL, Settings(8, runs_dir=str(tmp_path)))
    assert "validation" not in served.file("clients.json").read_text()
    assert Roll.read(served.file("clients.json")).federation().validation is None


def test_clients_tune_their_models_at_their_nodes_as_in_one_process(tmp_path: Path) -> None:
    personal = Personal(epochs=(1, 3), batch_size=10, validation_fraction=0.25)
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), personal=personal)
    grid = grid_of(experiment, tmp_path / "site")
    served = serve(grid, experiment, Settings(8, runs_dir=str(tmp_path)))
    expected = RunFolder.create(tmp_path / "here", experiment)
    for _ in execute(expected, Sources.default()):
        pass
    assert served.records()[-1].refused == {}
    for found, wanted in zip(served.clients(), expected.clients(), strict=True):
        assert found.tuned_epochs == wanted.tuned_epochs
        assert found.accuracy == wanted.accuracy
    assert any(client.tuned_epochs for client in served.clients())


def test_clients_of_a_run_that_is_not_finished_are_known_by_name(tmp_path: Path) -> None:
    served = serve(grid_of(SMALL, tmp_path / "site"), SMALL, Settings(8, runs_dir=str(tmp_path)))
    roll = Roll.read(served.file("clients.json"))
    names = [f"site {name}" for name in roll.names]
    served.file("clients.json").write_text(json_text({**roll.plain, "names": names}))
    served.file("clusters.csv").unlink()
    served.lines.write([replace(record, missing=(0,)) for record in served.records()])
    assert [client.name for client in Result(served).clients] == names
    printed = CliRunner().invoke(app, ["show", str(served.path)]).output.replace("│", " ")
    assert f"site 0 {SMALL.rounds} 0 no answer" in " ".join(printed.split())
