"""A node's noise is its secret, and what it has released is on its ledger."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from flwr.app import Context
from torch import Tensor

from tests.federations import blobs
from tests.flower.small import SMALL, engine_of, grid_of
from tests.shell import Shell
from umbel.algorithms import FedAvg
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.engines.clipping_and_noise import Private
from umbel.engines.privacy import Privacy
from umbel.engines.replies.guarded import QuorumError
from umbel.experiment.toml_file import write
from umbel.flow import Replies, Request
from umbel.flower import Settings, client_app, serve
from umbel.flower.client import Node
from umbel.flower.client_owners import Owners
from umbel.flower.discovery import Meeting
from umbel.flower.errors import RefusedError
from umbel.flower.ledger import Ledger, read_ledger
from umbel.flower.limits import NodeLimits
from umbel.flower.messages import Asked
from umbel.flower.registry import Roll
from umbel.networks import MLP
from umbel.result.run import Experiment

PRIVACY = Privacy(clip=1.0, noise_multiplier=8.0)
LOCAL = LocalTraining(epochs=1, batch_size=8)


def answered(folder: Path) -> dict[str, int]:
    """How many questions each client has answered."""
    return {client: len(asked) for client, asked in read_ledger(folder).entries.items()}


def question(seed: int = 1, value: float = 0.0) -> Request:
    return Request(LOCAL, torch.tensor([0]), [seed], {"theta": torch.full((3,), value)})


def test_the_same_question_gets_the_same_noise_and_costs_nothing_more(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, ("a", "b"), PRIVACY)
    first = ledger.grant(question())
    assert ledger.grant(question()) == first
    assert ledger.grant(question(seed=2)) != first
    assert ledger.grant(question(value=1.0)) != first
    assert {client: len(asked) for client, asked in read_ledger(tmp_path).entries.items()} == {
        "a": 3
    }


def test_the_noise_of_another_node_is_another(tmp_path: Path) -> None:
    grants = [Ledger(tmp_path / n, ("a",), PRIVACY).grant(question()) for n in ("1", "2")]
    assert grants[0].keys[0] != grants[1].keys[0]
    assert (tmp_path / "1" / "secret").stat().st_mode & 0o077 == 0


def test_beyond_its_budget_a_client_releases_nothing(tmp_path: Path) -> None:
    budget = PRIVACY.epsilon(2)
    ledger = Ledger(tmp_path, ("a",), replace(PRIVACY, max_epsilon=budget * 1.001))
    ledger.grant(question(1))
    ledger.grant(question(2))
    beyond = ledger.grant(question(3))
    assert not beyond.keys
    assert beyond.refused == {0: f"another update would exceed epsilon {budget * 1.001:g}"}
    assert ledger.grant(question(2)).keys
    assert {client: len(asked) for client, asked in read_ledger(tmp_path).entries.items()} == {
        "a": 2
    }


def test_over_flower_only_the_client_without_budget_is_refused(tmp_path: Path) -> None:
    experiment = private(rounds=2, max_epsilon=PRIVACY.epsilon(1) * 1.001)
    experiment = replace(experiment, participation=0.5, evaluate_every=9)
    run = replace(
        experiment.open(Sources.default()), engine=engine_of(grid_of(experiment, tmp_path, 1))
    )
    run = replace(run, limits=replace(run.limits, quorum=0.0))
    first, second = (set(run.context(n, 2).cohort.tolist()) for n in range(2))
    assert first & second, "some client is asked twice"
    assert second - first, "some client is asked for the first time"
    *_, (state, record) = run.rounds(2)
    assert set(record.refused) == first & second
    assert all("another update would exceed epsilon" in why for why in record.refused.values())
    assert not record.missing
    assert state.models.isfinite().all()


def test_a_damaged_ledger_releases_nothing(tmp_path: Path) -> None:
    (tmp_path / "released.json").write_text("{")
    with pytest.raises(ValueError, match=r"damaged: .*; nothing more is released"):
        Ledger(tmp_path, ("a",), PRIVACY).grant(question())


def test_every_byte_of_the_ledger_and_its_secret_counts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, ("a", "seal"), PRIVACY)
    first = ledger.grant(question())
    for name in ("released.json", "secret"):
        whole = (tmp_path / name).read_bytes()
        for place in range(len(whole)):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << place % 8
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(UsageError, match=rf"{name}: damaged: .*; nothing more is released"):
                ledger.grant(question())
        (tmp_path / name).unlink()
        with pytest.raises(UsageError, match=f"{name}: lost; nothing more is released"):
            ledger.grant(question())
        (tmp_path / name).write_bytes(whole)
    assert ledger.grant(question()) == first


@pytest.mark.parametrize("change", [{"clip": 2.0}, {"noise_multiplier": 4.0}])
def test_the_noise_of_one_ledger_is_never_scaled_anew(
    change: dict[str, float], tmp_path: Path
) -> None:
    Ledger(tmp_path, ("a",), PRIVACY).grant(question())
    other = Ledger(tmp_path, ("a",), replace(PRIVACY, **change))
    with pytest.raises(UsageError, match=r"as in earlier releases: choose another name"):
        other.grant(question())
    raised = Ledger(tmp_path, ("a",), replace(PRIVACY, max_epsilon=50.0, delta=1e-6))
    assert raised.grant(question()).keys


def test_another_network_or_objective_has_noise_of_its_own(tmp_path: Path) -> None:
    experiment = private(rounds=1)
    keys = set()
    for one in (experiment, replace(experiment, objective="regression")):
        x, y = blobs().train.of(0)
        federation = Federation.from_arrays([(x, y.float())] if one != experiment else [(x, y)])
        node = Node.of(one, federation, tmp_path / "run.safetensors")
        assert isinstance(node.engine, Private)
        keys |= set(node.engine.grant(question()).keys.values())
    hidden = replace(experiment, model=MLP((7,)))
    node = Node.of(hidden, blobs(), tmp_path / "run.safetensors")
    assert isinstance(node.engine, Private)
    keys |= set(node.engine.grant(question()).keys.values())
    assert len(keys) == 3


def test_the_same_network_has_the_same_noise_in_another_process(tmp_path: Path) -> None:
    nodes = [Node.of(private(rounds=1), blobs(), tmp_path / "run.safetensors") for _ in range(2)]
    first, second = (node.engine.grant(question()) for node in nodes)  # type: ignore[attr-defined]
    assert first == second


def test_runs_of_a_node_draw_on_one_budget(tmp_path: Path) -> None:
    budget = replace(PRIVACY, max_epsilon=PRIVACY.epsilon(2) * 1.05)
    louder = replace(budget, noise_multiplier=80.0)
    first, second = (Ledger(tmp_path / f"seed{n}-node", ("a",), budget) for n in range(2))
    assert first.grant(question(1)).keys
    assert second.grant(question(1)).keys
    assert second.grant(question(2)).refused
    assert first.grant(question(2)).refused
    assert second.grant(question(1)).keys  # it was released before
    # Little of the budget is left, and this noise needs little.
    assert not Ledger(tmp_path / "more-node", ("a",), louder).grant(question(1)).refused
    assert Ledger(tmp_path / "other" / "x-node", ("a",), budget).grant(question(1)).keys


def test_what_was_spent_is_computed_from_the_noise_that_was_released(
    tmp_path: Path, umbel: Shell
) -> None:
    released_with = replace(PRIVACY, noise_multiplier=1.0)
    for run, count in (("one", 2), ("two", 1)):
        ledger = Ledger(tmp_path / f"{run}-node", ("a",), released_with)
        for seed in range(count):
            ledger.grant(question(seed))
    file = tmp_path / "experiment.toml"
    file.write_text(write(private(rounds=1)))
    printed, _ = umbel("flower", "spent", str(file), str(tmp_path / "one-node"))
    assert f"{released_with.epsilon(2):.4g}" in printed
    assert f"{released_with.epsilon(3):.4g}" in printed  # of all runs
    assert "noise_multiplier 1, which is used here" in printed
    file.write_text(write(SMALL))
    assert "privacy.clip: None is not set" in umbel.refused(
        "flower", "spent", str(file), str(tmp_path / "one-node")
    )


def private(rounds: int, max_epsilon: float | None = None) -> Experiment:
    privacy = replace(PRIVACY, max_epsilon=max_epsilon)
    method = FedAvg(LOCAL)
    return replace(SMALL, algorithm=method, rounds=rounds, participation=1.0, privacy=privacy)


def test_over_flower_clients_spend_what_their_node_notes(tmp_path: Path, umbel: Shell) -> None:
    experiment = private(rounds=3)
    grid = grid_of(experiment, tmp_path, nodes=2)
    run = replace(experiment.open(Sources.default()), engine=engine_of(grid))
    *_, (state, _) = run.rounds(3)
    assert state.models.isfinite().all()
    folder = tmp_path / "small-seed0-0"
    assert {client: len(q) for client, q in read_ledger(folder).entries.items()} == dict.fromkeys(
        "0246", 3
    )
    printed, _ = umbel("flower", "spent", str(tmp_path / "experiment.toml"), str(folder))
    assert printed.count(f"{PRIVACY.epsilon(3):.4g}") == 4
    message = umbel.refused("flower", "spent", str(tmp_path / "experiment.toml"), str(tmp_path))
    assert "a folder with the ledger of a node that released updates" in message


def test_the_server_says_where_noise_drowns_every_update(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = private(rounds=1)
    settings = Settings(8, patience=5, runs_dir=str(tmp_path / "runs"))
    serve(grid_of(experiment, tmp_path, nodes=2), experiment, settings)
    (line,) = [line for line in caplog.messages if line.startswith("privacy: ")]
    assert "in a mean of 8 updates" in line
    assert "that of a clipped update at most 1" in line


def test_a_run_ends_where_the_budget_of_its_clients_does(tmp_path: Path) -> None:
    experiment = private(rounds=3, max_epsilon=PRIVACY.epsilon(1) * 1.001)
    assert "max_epsilon" in write(experiment)
    grid = grid_of(experiment, tmp_path, nodes=2)
    run = replace(experiment.open(Sources.default()), engine=engine_of(grid))
    with pytest.raises(QuorumError, match=r"round 1: .* another update would exceed epsilon"):
        list(run.rounds(3))


def test_nodes_that_share_a_ledger_lose_none_of_its_entries(tmp_path: Path) -> None:
    def released_by(client: str) -> None:
        for seed in range(12):
            Ledger(tmp_path, (client,), PRIVACY).grant(question(seed))

    with ThreadPoolExecutor(4) as nodes:
        list(nodes.map(released_by, "abcd"))
    found = {client: len(asked) for client, asked in read_ledger(tmp_path).entries.items()}
    assert found == dict.fromkeys("abcd", 12)


def test_private_nodes_need_a_folder_of_their_own(tmp_path: Path) -> None:
    grid = grid_of(private(rounds=1), tmp_path, nodes=2)
    for config in grid.configs.values():
        assert isinstance(config, dict)
        del config["memory-dir"], config["partition-id"]

    def load(context: Context, settings: Experiment) -> Federation:  # noqa: ARG001
        return blobs()

    app = client_app(tmp_path / "experiment.toml", load)
    grid.apps = dict.fromkeys(grid.apps, app)
    owners = Owners()
    assert Meeting(grid, 5.0, owners=owners).gather(8, 0.3) == {}
    (why,) = set(owners.refused.values())
    assert "memory-dir: None is not a folder of this node alone, in which [privacy] keeps" in why


def test_a_private_node_says_how_many_examples_there_are_nowhere_but_in_evaluations(
    tmp_path: Path,
) -> None:
    scenario = replace(ROTATED_DIGITS, clients=8, examples=(20, 40), validation_fraction=0.2)
    experiment = replace(private(rounds=1), scenario=scenario)
    grid = grid_of(experiment, tmp_path, nodes=2)
    for site in engine_of(grid).meeting.sites.values():
        ones = [1] * len(site.clients)
        assert (site.train, site.test, site.validation) == (ones, ones, ones)
    served = serve(grid, experiment, Settings(8, patience=5, runs_dir=str(tmp_path / "runs")))
    roll = Roll.read(served.file("clients.json"))
    assert (roll.train, roll.test, roll.validation) == ([1] * 8, [1] * 8, [1] * 8)
    assert [client.examples for client in served.clients()] == [1] * 8


@pytest.mark.parametrize("clip", [1.0, None])
def test_what_a_private_node_refuses_to_do_tells_no_number_of_examples(
    clip: float | None, tmp_path: Path
) -> None:
    experiment = replace(private(rounds=1), privacy=Privacy() if clip is None else PRIVACY)
    data = experiment.scenario.build(0, Sources.default())
    node = Node.of(experiment, data, tmp_path / "memory.safetensors")
    shared = {"theta": torch.zeros(node.net.layout.num_values)}
    work = LocalTraining(epochs=1000, batch_size=1)
    steps = 1000 * int(data.train.sizes[0])
    with pytest.raises(RefusedError) as refusal:
        node.work(Asked(work, ["0"], [1], shared, {}, {}), NodeLimits(max_steps=10))
    assert (str(steps) in str(refusal.value)) == (clip is None)
    assert "than the 10 that this node allows" in str(refusal.value)


def test_with_other_training_examples_the_same_question_is_a_new_one(tmp_path: Path) -> None:
    train = blobs((4, 5)).train
    first = Ledger(tmp_path, ("a", "b"), PRIVACY, train).grant(question())
    assert Ledger(tmp_path, ("a", "b"), PRIVACY, train).grant(question()) == first
    other = replace(train, x=train.x + 1)
    assert Ledger(tmp_path, ("a", "b"), PRIVACY, other).grant(question()) != first
    assert {client: len(asked) for client, asked in read_ledger(tmp_path).entries.items()} == {
        "a": 2
    }


def test_what_examples_say_stays_at_the_node_that_can_t_read_them(
    tmp_path: Path,
) -> None:
    experiment = private(rounds=1)
    grid = grid_of(experiment, tmp_path, nodes=2)

    def load(context: Context, settings: Experiment) -> Federation:  # noqa: ARG001
        raise ValueError("could not convert string to float: 'Anna Mueller'")

    grid.apps = dict.fromkeys(grid.apps, client_app(tmp_path / "experiment.toml", load))
    owners = Owners()
    assert Meeting(grid, 5.0, owners=owners).gather(8, 0.3) == {}
    (why,) = set(owners.refused.values())
    assert "its examples can't be read: ValueError; this node's log says more" in why


@dataclass
class Says:
    """An engine whose clients answer with this update."""

    update: Tensor

    def send(self, request: Request) -> Replies:
        rows = self.update.repeat(len(request.clients), 1)
        return Replies(request.clients, {"update": rows, "num_examples": torch.ones(len(rows))})


def said(engine: Private, update: Tensor) -> Replies:
    return replace(engine, engine=Says(update)).send(question())


def test_another_answer_to_a_question_has_noise_of_its_own_and_counts(tmp_path: Path) -> None:
    budget = replace(PRIVACY, max_epsilon=PRIVACY.epsilon(2) + 1e-6)
    first, second = torch.tensor([0.5, 0.0, 0.0]), torch.tensor([0.0, 0.3, 0.0])
    engine = Private(Says(first), budget, Ledger(tmp_path, ("a",), budget).grant)

    one, again = said(engine, first), said(engine, first)
    other = said(engine, second)

    assert torch.equal(one.columns["update"], again.columns["update"])
    apart = other.columns["update"] - one.columns["update"]
    assert float((apart - (second - first)).abs().max()) > 1e-3
    assert answered(tmp_path) == {"a": 2}
    third = said(engine, torch.tensor([0.0, 0.0, 0.1]))
    assert not len(third.clients)
    assert third.refused == {0: f"another update would exceed epsilon {budget.max_epsilon:g}"}
    assert torch.equal(said(engine, second).columns["update"], other.columns["update"])
