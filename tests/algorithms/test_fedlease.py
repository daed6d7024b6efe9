"""FedLEASE: rounds worked by hand, before, at and after the clustering; then on planted groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Size, Tensor, nn

import umbel
from tests.federations import answered, context, mlp, requested, setup
from umbel.algorithms import FedAvg, FedLEASE
from umbel.algorithms.base import State
from umbel.algorithms.fedlease import FedLEASEState
from umbel.checks import UsageError
from umbel.client.layout import Entry, Layout
from umbel.client.work import LocalTraining, Routed
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.experiment.library import find_experiment
from umbel.flow import Replies
from umbel.networks import LoRA
from umbel.server.ask import Context
from umbel.testing import adapted_mlp, blobs

LAYOUT = Layout(
    (
        Entry("l.lora_A.weight", Size([1, 2])),
        Entry("l.lora_B.weight", Size([2, 1])),
        Entry("head.bias", Size([1])),
    ),
    (Entry("norm.running_mean", Size([1])),),
)

START = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 5.0])  # A, B, the head's bias, a running mean

ALGORITHM = FedLEASE(warm_up=1, num_clusters=2)

GENTLE = LocalTraining(lr=0.03, epochs=2, batch_size=8)


def start(num_clients: int, algorithm: FedLEASE = ALGORITHM) -> FedLEASEState:
    return algorithm.init(replace(setup(num_clients), layout=LAYOUT, new_model=lambda _: START))


def knowing(cohort: Sequence[int], number: int, num_clients: int = 5) -> Context:
    return replace(context(cohort, num_clients, number=number), layout=LAYOUT)


def warmed_up() -> FedLEASEState:
    """After a round in which client 4 took no part: B of 0 and 1 are alike, and of 2 and 3."""
    flow = ALGORITHM.round(start(5), knowing([0, 1, 2, 3], 0))
    requested(flow)
    update = [
        [0.0, 0.0, 2.0, 0.0, 4.0, 8.0],
        [0.0, 4.0, 4.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 3.0, 1.0, 0.0],
        [2.0, 0.0, 0.0, 1.0, 1.0, 0.0],
    ]
    return answered(flow, [0, 1, 2, 3], update=update, num_examples=[1, 3, 2, 2])


def test_in_the_warm_up_each_client_trains_from_its_own_last_result() -> None:
    state = warmed_up()
    assert state.labels.tolist() == [0, 1, 2, 3, 4]
    assert state.models[1].tolist() == [1.0, 5.0, 4.0, 0.0, 0.0, 5.0]
    assert torch.equal(state.models[4], START)
    assert state.examples.tolist() == [1, 3, 2, 2, 0]
    longer = replace(ALGORITHM, warm_up=2)
    request = requested(longer.round(state, knowing([1, 4], 1)))
    assert request.work == LocalTraining()
    assert torch.equal(request.sent_to(0)["theta"], state.models[1])
    assert torch.equal(request.sent_to(1)["theta"], START)


def routed_round() -> tuple[FedLEASEState, FedLEASEState]:
    """The state after a round in which clients 0, 1 and 2 trained experts; that before it."""
    flow = ALGORITHM.round(warmed_up(), knowing([0, 1, 2], 1))
    request = requested(flow)
    assert request.work == Routed(LocalTraining(), 2)
    first, third = request.sent_to(0), request.sent_to(2)
    # Means by the number of examples: A, B, bias; then the router of 3 slots; the running mean.
    assert first["theta"][:5].tolist() == [1.0, 4.0, 3.5, 0.0, 1.0]
    assert third["theta"][:5].tolist() == [2.0, 1.0, 0.0, 2.0, 1.0]
    assert first["theta"][-1] == 5 + 8 / 4
    assert first["theta"].shape == (5 + 3 * 2 + 1,)
    # The others are A and B of the other cluster, without its head.
    assert first["others"].tolist() == [2.0, 1.0, 0.0, 2.0]
    assert third["others"].tolist() == [1.0, 4.0, 3.5, 0.0]
    before = torch.stack([first["theta"], third["theta"]])
    zeros, ones = [0.0] * 12, [1.0] * 12
    moved = [4.0 * n for n in range(12)]
    after = answered(flow, [0, 1, 2], update=[moved, zeros, ones], num_examples=[1, 3, 9])
    shown = replace(after, models=torch.cat([before[:, :5], before[:, 11:]], 1))
    return after, replace(shown, routers=before[:, 5:11])


def test_then_clusters_are_made_and_each_trains_its_expert_beside_the_others() -> None:
    after, before = routed_round()
    crowd, other = after.labels[[0, 2]].tolist()
    # Client 4, which has not trained, is with the most, or where these are as many, the first.
    assert after.labels.tolist() == [crowd, crowd, other, other, 0]
    order = torch.tensor([crowd, other]).argsort()
    step = torch.stack([torch.arange(12.0), torch.ones(12)])[order]  # 4 n / (1 + 3), and 1
    routers = after.routers - before.routers[order]
    models = after.models - before.models[order]
    torch.testing.assert_close(models, torch.cat([step[:, :5], step[:, 11:]], 1))
    torch.testing.assert_close(routers, step[:, 5:11])
    # Both routers were drawn alike.
    assert torch.equal(*before.routers)
    assert before.routers.abs().max() <= 2**-0.5


def test_clients_are_served_their_expert_with_its_router_and_all_others() -> None:
    state, _ = routed_round()
    flow = ALGORITHM.serve(state, knowing([0, 2, 4], 1))
    with pytest.raises(StopIteration) as stop:
        next(flow)
    served = stop.value.value
    assert served.experts == 2
    assert served.labels.tolist() == state.labels[[0, 2, 4]].tolist()
    row = served.models.row(1)
    k = int(state.labels[2])
    assert torch.equal(row[:5], state.models[k, :5])
    assert torch.equal(row[5:11], state.routers[k])
    assert torch.equal(row[11:12], state.models[k, 5:])
    assert torch.equal(row[12:], state.models[1 - k, :4])
    assert torch.equal(served.adapted_from.row(1), state.models[k])


def test_a_client_that_missed_the_warm_up_makes_up_for_it_and_joins_the_nearest() -> None:
    state, _ = routed_round()
    algorithm = replace(ALGORITHM, local=LocalTraining(lr=0.1, epochs=2, lr_decay=0.5), warm_up=3)
    flow = algorithm.round(state, knowing([0, 4], 7))
    request = requested(flow)
    # For as many epochs as the warm-up has, at the mean of its rates, 1, 1/2 and 1/4 times `lr`.
    assert request.work == LocalTraining(lr=0.1 * (1.75 / 3), epochs=6)
    assert request.clients.tolist() == [4]
    assert request.optional
    assert torch.equal(request.sent_to(0)["theta"], START)
    replies = Replies(
        torch.tensor([4]),
        {"update": torch.tensor([[9.0, 0, 0.1, 2.0, 0, 0]]), "num_examples": torch.tensor([6])},
    )
    then = flow.send(replies)
    # B points where client 2's pointed; the update it was placed by is averaged into nothing.
    assert then.clients.tolist() == [0, 4]
    assert then.each["theta"].index.tolist() == state.labels[[0, 2]].tolist()
    assert torch.equal(then.each["theta"].table[:, :5], state.models[:, :5])
    after = answered(flow, [0, 4], update=[[0.0] * 12] * 2, num_examples=[1, 6])
    assert after.labels[4] == state.labels[2]
    assert after.examples[4] == 6


def last(algorithm: FedLEASE, num_groups: int) -> tuple[State, umbel.Record]:
    federation = blobs([30] * 12, num_groups=num_groups)
    *_, (state, record) = umbel.Run(algorithm, federation, adapted_mlp(torch.float64)).rounds(3)
    return state, record


@pytest.mark.parametrize("num_groups", [2, 3])
def test_planted_groups_are_found_and_their_number(num_groups: int) -> None:
    state, record = last(FedLEASE(warm_up=2, local=GENTLE), num_groups)
    assert (len(state.models), record.ari) == (num_groups, 1.0)
    assert (record.measures["chance"] or 0) < 0.05
    assert (record.measures["silhouette"] or 0) > 0.8


def test_clients_of_one_kind_get_one_expert_unless_the_papers_rule_is_asked_for() -> None:
    state, record = last(FedLEASE(warm_up=2, local=GENTLE), 1)
    assert len(state.models) == 1
    assert (record.measures["chance"] or 0) > 0.05
    paper, _ = last(FedLEASE(warm_up=2, level=1.0, local=GENTLE), 1)
    assert len(paper.models) > 1


def test_with_one_expert_it_is_fedavg() -> None:
    one = FedLEASE(warm_up=2, num_clusters=1, local=GENTLE)
    run = umbel.Run(one, blobs(), adapted_mlp(torch.float64), seed=1)
    states = [state for state, _ in run.rounds(5)]
    assert len(states[2].models) == 1
    fedavg = replace(run, algorithm=FedAvg(GENTLE))
    from_here = State(states[2].models, states[2].labels)
    *_, (expected, _) = fedavg.rounds(5, state=from_here, first=3)
    assert torch.equal(states[4].models, expected.models)


def test_a_network_without_adapters_is_refused_before_the_first_round() -> None:
    with pytest.raises(UsageError, match=r"net: no adapters: .* use umbel\.networks\.LoRA"):
        umbel.Run(FedLEASE(), blobs(), mlp())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warm_up": 0}, "warm_up: 0 is not 1 or more"),
        ({"num_clusters": 0}, "num_clusters: 0 is not 1 or more"),
        ({"max_clusters": 1}, "max_clusters: 1 is not 2 or more"),
        ({"level": 0.0}, r"level: 0\.0 is not in \(0\.005, 1\]"),
        ({"level": 0.005}, r"with 199 simulated sets no chance is smaller"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FedLEASE(**settings)


def build() -> nn.Module:
    """A network that other processes can build, too."""
    first, second = (LoRA(nn.Linear(size, 8), rank=2) for size in (6, 8))
    return nn.Sequential(nn.Flatten(), first, nn.Tanh(), second, nn.Tanh(), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> umbel.Result:
    algorithm = FedLEASE(warm_up=2, local=GENTLE)
    run = umbel.Run(algorithm, blobs([30] * 12), umbel.Net(build))
    folder = tmp_path_factory.mktemp("runs") / "mine"
    run.save(folder, 5)
    return umbel.load(folder)


def test_a_saved_model_of_a_client_gives_what_the_records_say(result: umbel.Result) -> None:
    federation = blobs([30] * 12)
    right = [
        float((result.model_for(client)(x).argmax(1) == y).double().mean())
        for client in range(12)
        for x, y in [federation.test.of(client)]
    ]
    assert right == [client.accuracy for client in result.clients]
    # The model of a cluster is its expert by itself, which is another.
    x: Tensor = federation.test.of(0)[0]
    assert not torch.allclose(result.model(0)(x), result.model_for(0)(x))
    names = {name for name, _ in result.model(0).named_parameters()}
    assert names == {name for name, _ in build().named_parameters()}


def test_newcomers_join_the_cluster_whose_b_is_nearest(result: umbel.Result) -> None:
    newcomers = blobs([25] * 6)
    assert newcomers.groups is not None
    found = result.assign(newcomers)
    assert list(found.clusters.values()) == newcomers.groups.tolist()
    assert found.confidence is None


def test_rotations_of_digits_are_found_and_newcomers_join_theirs(
    sources: Sources, tmp_path: Path
) -> None:
    experiment = umbel.read(find_experiment("fedlease-digits"), ["rounds=7", "evaluate_every=7"])
    *_, record = umbel.execute(umbel.RunFolder.create(tmp_path / "run", experiment), sources)
    assert (record.num_clusters, record.ari) == (4, 1.0)
    newcomers = ROTATED_DIGITS.build(seed=99, sources=sources)
    assert newcomers.groups is not None
    found = umbel.load(tmp_path / "run").assign(newcomers)
    assert list(found.clusters.values()) == newcomers.groups.tolist()
