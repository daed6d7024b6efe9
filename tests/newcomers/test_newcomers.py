"""Newcomers are placed by their inputs alone where inputs tell clusters apart, and only there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import umbel
from umbel.algorithms.joint import JointState
from umbel.checks import UsageError
from umbel.cli import app
from umbel.client.work import Description, Gradient, LocalTraining
from umbel.data.scenarios import LABEL_SWAPPED_DIGITS, ROTATED_DIGITS
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.engines import Sequential, Vectorised
from umbel.flow import Request, Rows
from umbel.networks import Linear
from umbel.newcomers import descriptions
from umbel.newcomers.descriptions import placed
from umbel.result.run import Result

LOCAL = LocalTraining(epochs=1)


def finished(scenario: Scenario, folder: Path, clients: slice = slice(0, 20)) -> Result:
    """A run in the planted groups on some of the clients."""
    federation = scenario.build(0, Sources.default(None))
    chosen = federation.pick(range(federation.num_clients)[clients])
    return run_of(chosen).save(folder, rounds=1)


def run_of(federation: umbel.Federation) -> umbel.Run:
    return umbel.Run(umbel.Oracle(LOCAL), federation, umbel.Net(_linear))


def _linear() -> torch.nn.Module:
    return Linear().build((1, 8, 8), 10)


def newcomers(scenario: Scenario, clients: slice) -> umbel.Federation:
    federation = scenario.build(0, Sources.default(None))
    return federation.pick(range(federation.num_clients)[clients])


def test_newcomers_without_labels_join_clients_whose_inputs_are_alike(tmp_path: Path) -> None:
    others, new = slice(0, 20, 2), slice(1, 20, 2)
    result = finished(ROTATED_DIGITS, tmp_path / "run", others)
    known, unknown = newcomers(ROTATED_DIGITS, others), newcomers(ROTATED_DIGITS, new)

    assigned = result.assign(unknown, labelled=False, clients=known)

    assert unknown.groups is not None
    group_of = {cluster: known.groups[n] for n, cluster in enumerate(result.clusters.values())}  # type: ignore[index]
    found = [group_of[cluster] for cluster in assigned.clusters.values()]
    assert found == unknown.groups.tolist()
    assert assigned.confidence is not None
    assert float(assigned.confidence.min()) > 0.9


def test_the_runs_own_data_are_needed_once(tmp_path: Path) -> None:
    result = finished(ROTATED_DIGITS, tmp_path / "run")
    new = newcomers(ROTATED_DIGITS, slice(0, 2))
    with pytest.raises(umbel.UsageError, match="clients="):
        result.assign(new, labelled=False)
    first = result.assign(new, labelled=False, clients=newcomers(ROTATED_DIGITS, slice(0, 20)))
    again = umbel.load(tmp_path / "run", umbel.Net(_linear)).assign(new, labelled=False)
    assert again.clusters == first.clusters


def test_clients_whose_examples_are_no_longer_the_runs_are_refused(tmp_path: Path) -> None:
    others, new = slice(0, 10), newcomers(ROTATED_DIGITS, slice(10, 12))
    result = finished(ROTATED_DIGITS, tmp_path / "run", others)
    own = newcomers(ROTATED_DIGITS, others)
    changed = replace(own, train=replace(own.train, x=own.train.x.flip(0).contiguous()))
    with pytest.raises(umbel.UsageError, match="of another run: examples: other values"):
        result.assign(new, labelled=False, clients=changed)
    assert len(result.assign(new, labelled=False, clients=own).clusters) == 2


def test_a_damaged_description_says_what_to_do(tmp_path: Path) -> None:
    result = finished(ROTATED_DIGITS, tmp_path / "run")
    clients = newcomers(ROTATED_DIGITS, slice(0, 20))
    result.assign(clients, labelled=False, clients=clients)
    file = tmp_path / "run" / descriptions.FILE
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with pytest.raises(umbel.UsageError, match="remove it"):
        result.assign(clients, labelled=False)


def test_clusters_that_differ_in_labels_given_inputs_are_refused(tmp_path: Path) -> None:
    result = finished(LABEL_SWAPPED_DIGITS, tmp_path / "run")
    clients = newcomers(LABEL_SWAPPED_DIGITS, slice(0, 20))
    with pytest.raises(umbel.UsageError, match="do not tell this run's clusters apart"):
        result.assign(clients, labelled=False, clients=clients)


def test_one_cluster_takes_everybody() -> None:
    table = np.random.default_rng(0).normal(size=(8, 3))
    assert placed(table, np.zeros(8, dtype=int), table[:2], 1, 0).tolist() == [[1.0], [1.0]]


def test_earlier_descriptions_are_kept_of_those_who_do_not_answer_again() -> None:
    def of(*clients: int, value: float, width: int = 2) -> descriptions.Descriptions:
        table = torch.full((len(clients), width), value)
        return descriptions.Descriptions(clients=torch.tensor(clients), table=table)

    found = descriptions.with_earlier(of(3, 1, value=1.0), of(0, 1, 2, value=2.0))
    assert found.clients.tolist() == [0, 1, 2, 3]
    assert found.table.tolist() == [[2.0] * 2, [1.0] * 2, [2.0] * 2, [1.0] * 2]
    wider = of(0, value=2.0, width=3)
    assert descriptions.with_earlier(of(1, value=1.0), wider).clients.tolist() == [1]


def test_a_description_is_the_mean_and_deviation_of_bounded_outputs() -> None:
    clients = [(np.full((3, 1), 2.0), np.zeros(3)), (np.array([[0.0], [4.0], [99.0]]), np.zeros(3))]
    federation = umbel.Federation.from_arrays(clients, test_fraction=0.0)
    net = umbel.Net(lambda: torch.nn.Linear(1, 1), umbel.REGRESSION)
    models = {"models": torch.tensor([[1.0, 0.0], [0.0, 3.0]])}  # x itself, and 3
    request = Request(Description(1, bound=8.0), torch.arange(2), [0, 0], models)
    for engine in (Sequential, Vectorised):
        columns = engine(net, federation).send(request).columns
        torch.testing.assert_close(
            columns["mean"], torch.tensor([[2.0, 3.0], [4.0, 3.0]], dtype=torch.float64)
        )
        spread = (32 / 3) ** 0.5  # of 0, 4 and 8
        expected = torch.tensor([[0.0, 0.0], [spread, 0.0]], dtype=torch.float64)
        torch.testing.assert_close(columns["deviation"], expected)


def test_by_labels_a_clear_case_is_sure_and_a_single_example_is_not(tmp_path: Path) -> None:
    result = finished(ROTATED_DIGITS, tmp_path / "run")
    clients = newcomers(ROTATED_DIGITS, slice(0, 1))
    x, y = clients.train.of(0)
    many = umbel.Federation.from_arrays([(x, y)], test_fraction=0.0, num_classes=10)
    one = umbel.Federation.from_arrays([(x[:1], y[:1])], test_fraction=0.0, num_classes=10)
    sure, unsure = (result.assign(each).confidence for each in (many, one))
    assert sure is not None
    assert unsure is not None
    assert float(sure) > 0.99
    assert float(unsure) == 0.25


def test_newcomers_of_a_kind_that_the_run_has_not_seen_are_named(tmp_path: Path) -> None:
    federation = newcomers(ROTATED_DIGITS, slice(0, 20))
    result = run_of(federation).save(tmp_path / "run", rounds=10)
    like = newcomers(ROTATED_DIGITS, slice(0, 1))
    x, y = like.train.of(0)
    clients = {"like": (x, y), "other": (x, (y + 1) % 10)}
    both = umbel.Federation.from_arrays(clients, test_fraction=0.0, num_classes=10)
    assigned = result.assign(both)
    assert [*assigned.unlike] == ["other"]
    assert assigned.unlike is assigned.unlike  # a row for each newcomer asks again
    assert "unlike the run's clients: other" in repr(assigned)
    losses = [client.loss for client in result.clients if client.loss is not None]
    assert assigned.run_losses == (min(losses), max(losses))


def test_newcomers_are_compared_at_the_learning_rate_of_the_last_round(tmp_path: Path) -> None:
    local = LocalTraining(lr=0.5, lr_decay=0.5, steps=1, batch_size="all")
    method = umbel.Joint(2, local, lam=1.0, similarity="euclidean")
    clients = newcomers(ROTATED_DIGITS, slice(0, 6))
    net = umbel.Net(_linear)
    result = umbel.Run(method, clients, net).save(tmp_path, rounds=3)
    state = result.state
    assert isinstance(state, JointState)

    found = result.assign(clients)

    work = Gradient("all")
    expected = torch.empty(6, 2)
    for k in range(2):
        each = {"theta": Rows(state.models[[k]], torch.zeros(6, dtype=torch.long))}
        sent = Sequential(net, clients).send(Request(work, torch.arange(6), [0] * 6, each=each))
        steps = -(0.5**3) * sent.columns["gradient"]
        expected[:, k] = (steps - state.moves[k]).norm(dim=1)
    labels = [made_for.label for made_for in result.made_for]
    torch.testing.assert_close(found.scores, expected[:, labels], check_dtype=False)


def test_the_command_takes_files_without_labels(tmp_path: Path) -> None:
    text = (
        'rounds = 1\n[scenario]\nname = "rotated-digits"\n[model]\nname = "linear"\n'
        '[algorithm]\nname = "oracle"\n'
    )
    (tmp_path / "digits.toml").write_text(text)
    run = CliRunner().invoke(
        app, ["run", str(tmp_path / "digits.toml"), "--runs-dir", str(tmp_path)]
    )
    assert run.exit_code == 0, run.output
    x = newcomers(ROTATED_DIGITS, slice(5, 6)).train.x.numpy()
    np.savez(tmp_path / "eve.npz", x=x)
    asked = ["assign", str(tmp_path / "digits-seed0"), str(tmp_path / "eve.npz"), "--unlabelled"]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    assert "eve" in said.output
    assert "confidence" in said.output


def test_a_newcomer_with_one_label_an_example_joins_clients_who_have_several(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    own = [(rng.normal(size=(12, 4)), rng.integers(0, 2, (12, 3))) for _ in range(4)]
    net = umbel.Net(lambda: torch.nn.Linear(4, 3), umbel.BINARY)
    run = umbel.Run(umbel.IFCA(num_clusters=2), umbel.Federation.from_arrays(own), net)
    result = run.save(tmp_path / "run", 1)
    new = umbel.Federation.from_arrays({"new": (rng.normal(size=(1, 4)), np.array([[0, 1, 0]]))})
    assert list(result.assign(new).clusters) == ["new"]
    pairs: Any = {"new": own[0]}
    with pytest.raises(umbel.UsageError, match=r"^newcomers: a dict is not a Federation; write"):
        result.assign(pairs)


class _EachStep(torch.nn.Module):
    """Two classes for every step of a sequence: (B, L) to (B, 2, L)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps: torch.Tensor = self.table(x)
        return steps.transpose(1, 2)


@pytest.mark.parametrize("kind", ["two targets", "two answers", "sequences"])
def test_newcomers_without_labels_join_those_who_have_several_an_example(
    kind: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)

    def client(group: int) -> tuple[Any, Any]:
        if kind == "sequences":
            x = rng.integers(3 * group, 3 * group + 3, (40, 7))
            return x, x % 2
        x = rng.normal(4.0 * group, 1.0, (40, 3)).astype("float32")
        return x, x[:, :2] if kind == "two targets" else (x[:, :2] > 0).astype("int64")

    net = {
        "two targets": umbel.Net(_two, umbel.REGRESSION),
        "two answers": umbel.Net(_two, umbel.BINARY),
        "sequences": umbel.Net(_EachStep),
    }[kind]
    clients = {f"c{n}": client(n % 2) for n in range(12)}
    federation = umbel.Federation.from_arrays(clients, groups=[n % 2 for n in range(12)])
    run = umbel.Run(umbel.Oracle(LOCAL), federation, net)
    result = run.save(tmp_path / "run", 1)
    np.savez(tmp_path / "eve.npz", x=client(1)[0])
    found = result.assign(tmp_path / "eve.npz", labelled=False, clients=federation)
    assert found.clusters == {"eve": result.clusters["c1"]}


@pytest.mark.parametrize(
    ("tokens", "given", "message"),
    [
        (True, "float32", "inputs are floating-point numbers, but the network's embedding takes"),
        (True, "int64", "an input is not a row of the network's embedding"),
        (False, "int64", "inputs are whole numbers, but the network takes floating-point ones"),
    ],
)
def test_inputs_without_labels_that_the_network_does_not_take_are_refused_in_a_sentence(
    tokens: bool, given: str, message: str, tmp_path: Path
) -> None:
    x = np.arange(42).reshape(6, 7)
    own = x % 6 if tokens else x / 42
    pairs = [(own, x % 2 if tokens else x[:, 0] % 2) for _ in range(4)]
    net = umbel.Net(_EachStep if tokens else _of_seven)
    federation = umbel.Federation.from_arrays(pairs, groups=[0, 0, 1, 1])
    result = umbel.Run(umbel.Oracle(LOCAL), federation, net).save(tmp_path / "run", 1)
    np.savez(tmp_path / "eve.npz", x=x.astype(given))
    with pytest.raises(umbel.UsageError, match=f"x: {message}"):
        result.assign(tmp_path / "eve.npz", labelled=False, clients=federation)


def _of_seven() -> torch.nn.Module:
    return torch.nn.Linear(7, 2)


def _two() -> torch.nn.Module:
    return torch.nn.Linear(3, 2)


@pytest.mark.parametrize("sizes", [(4, 4), (3, 3, 3), (1, 19)])
def test_clusters_of_few_clients_are_told_apart_by_inputs_if_they_are_far_apart(
    sizes: tuple[int, ...],
) -> None:
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    known = np.random.default_rng(0).normal(size=(len(clusters), 10)) + 100.0 * clusters[:, None]
    found = placed(known, clusters, known, len(sizes), seed=0)
    assert (found.argmax(1) == clusters).all()


@pytest.mark.parametrize("sizes", [(4, 4), (3, 3, 3), (1, 19)])
def test_clusters_of_few_clients_that_inputs_do_not_tell_apart_are_refused(
    sizes: tuple[int, ...],
) -> None:
    clusters, taken = np.repeat(np.arange(len(sizes)), sizes), 0
    for seed in range(100):
        known = np.random.default_rng(seed).normal(size=(len(clusters), 10))
        try:
            placed(known, clusters, known, len(sizes), seed)
        except UsageError:
            continue
        taken += 1
    assert taken <= 5  # 0.01 of 100 are expected at most; six come by chance once in 2,000 times


def test_one_or_two_inputs_are_not_enough_to_be_sure_of(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def client(number: int, size: int) -> tuple[Any, Any]:
        x = rng.normal(size=(size, 6)) + 3 * (number % 2)
        return x.astype(np.float32), np.arange(size) % 2

    known = umbel.Federation.from_arrays([client(n, 40) for n in range(12)])
    method = umbel.FixedClusters(clusters=(0, 1) * 6, local=LOCAL)
    net = umbel.Net(lambda: torch.nn.Linear(6, 2))
    result = umbel.Run(method, known, net).save(tmp_path / "run", 1)
    sizes = (1, 2, 4, 5, 30)
    new = umbel.Federation.from_arrays([client(0, size) for size in sizes], test_fraction=0)

    assigned = result.assign(new, labelled=False, clients=known)

    assert assigned.confidence is not None
    assert assigned.confidence[:3].tolist() == [0.5] * 3
    assert float(assigned.confidence[3:].min()) > 0.9
    assert list(assigned.clusters.values())[3:] == [result.clusters["0"]] * 2


def test_newcomers_without_a_usable_reply_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clients = newcomers(ROTATED_DIGITS, slice(0, 6))
    method = umbel.FLHC(cluster_round=1, num_clusters=2, local=LOCAL)
    result = umbel.Run(method, clients, umbel.Net(_linear)).save(tmp_path, 2)
    x, y = clients.train.of(0)
    pairs = {"kim": (x, y), "lee": (x * 1e30, y), "max": (x, y)}
    new = umbel.Federation.from_arrays(pairs, test_fraction=0.0, num_classes=10)

    assert result.assign(new).clusters.keys() == {"kim", "max"}

    said = "not assigned to a cluster for lack of a usable reply: lee (update: "
    assert [text for text in caplog.messages if text.startswith(said)]
