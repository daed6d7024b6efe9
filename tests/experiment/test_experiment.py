from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

import umbel
from tests.engines.modules import OwnStatistics
from tests.federations import blobs, mlp
from umbel.algorithms import CFLGP, FLACC, FLHC, IFCA, FedAvg, FedEM, FedProx, Sattler
from umbel.algorithms.base import Algorithm
from umbel.algorithms.restarts import Restarts
from umbel.algorithms.sharing import Sharing
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.engines.replies.faults import Faults
from umbel.engines.replies.guarded import QuorumError
from umbel.engines.replies.validation import Limits
from umbel.networks import MLP, Model
from umbel.result.run import Experiment, Run
from umbel.run.records import Record
from umbel.run.stopping import Budget
from umbel.server.aggregation import Averaging

LOCAL = LocalTraining(epochs=1, batch_size=8)


def test_what_can_not_run_is_refused_when_it_is_built() -> None:
    with pytest.raises(UsageError, match=r"shared: 'trunk\.\*' is not a pattern for any of"):
        Run(FedAvg(averaging=Averaging(shared=("trunk.*",))), blobs(), mlp())
    with pytest.raises(UsageError, match="parameters: 'head' is not a pattern for any of"):
        Run(CFLGP(parameters=("head",)), blobs(), mlp())
    with pytest.raises(UsageError, match=r"participation: 0\.5 is not 1: all clients take part"):
        Run(Sattler(), blobs(), mlp(), participation=0.5)
    with pytest.raises(UsageError, match=r"net: Linear.* is not a Net; write Net\(lambda: "):
        Run(FedAvg(), blobs(), nn.Linear(6, 3))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="reduction: 'sum' is not \"mean\", which send"):
        CFLGP(send="update", reduction="sum")
    with pytest.raises(UsageError, match=r"local\.proximal: 0\.5 is not 0: for FedProx, set `mu`"):
        FedProx(local=LocalTraining(proximal=0.5))


def test_more_clusters_than_clients_are_refused_before_the_first_round() -> None:
    run = Run(IFCA(num_clusters=99), blobs(), mlp())
    with pytest.raises(UsageError, match="num_clusters: 99 is not at most the number of clients"):
        run.rounds(3)
    # Newcomers may be fewer than the clusters that they are assigned to.
    trained = Run(IFCA(num_clusters=3), blobs([20] * 6), mlp())
    *_, (state, _) = trained.rounds(1)
    assert len(replace(trained, federation=blobs([20] * 2)).assign(state).clients) == 2


@dataclass(frozen=True)
class Hospitals(Scenario):
    """Six clients, whatever its field says: names, or the clients of each of three groups."""

    clients: tuple[str, ...] | int = ("north", "south")

    def build(self, seed: int, sources: Sources) -> Federation:  # noqa: ARG002
        return blobs([20] * 6)


@dataclass(frozen=True)
class Misbuilt(Hospitals):
    """Returns the clients' examples."""

    def build(self, seed: int, sources: Sources) -> Any:
        return [super().build(seed, sources)]


@dataclass(frozen=True)
class Unbuilt(Model):
    """Forgets to return its module."""

    def build(self, input_shape: Sequence[int], num_outputs: int) -> Any:
        nn.Linear(input_shape[0], num_outputs)


@dataclass(frozen=True)
class Centring(Model):
    """Has a statistic of its own."""

    moving = ("running",)

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:  # noqa: ARG002
        return OwnStatistics()


def test_what_a_build_of_ones_own_returns_is_checked() -> None:
    method = FedAvg(LOCAL)
    with pytest.raises(UsageError, match=r"^Misbuilt.build returned a list, not a Federation$"):
        Experiment(Misbuilt(), MLP((4,)), method).open(Sources.default())
    with pytest.raises(UsageError, match=r"^Unbuilt.build returned None, not an nn.Module: does"):
        Experiment(Hospitals(), Unbuilt(), method).open(Sources.default())


def test_a_model_of_ones_own_names_the_buffers_that_training_changes() -> None:
    run = Experiment(Hospitals(), Centring(), FedAvg(LOCAL)).open(Sources.default())
    assert [entry.name for entry in run.net.layout.rest] == ["running"]
    ((state, _),) = run.rounds(1)
    assert run.net.layout.tensors(state.models[0])["running"].abs().min() > 0


def make_run(**changes: object) -> Run:
    return replace(Run(FedAvg(LOCAL), blobs(), mlp()), **changes)  # type: ignore[arg-type]


def test_a_run_is_an_iterator_of_states_and_records() -> None:
    rounds = list(make_run(participation=0.5).rounds(3))
    assert [record.round for _, record in rounds] == [0, 1, 2]
    assert all(record.accuracy is not None for _, record in rounds)
    assert not torch.equal(rounds[0][0].models, rounds[1][0].models)


def test_cohorts_are_a_function_of_seed_and_round_and_of_the_right_size() -> None:
    run = make_run(participation=0.5, seed=1)
    cohorts = [run.context(number, 100).cohort.tolist() for number in range(20)]
    assert all(len(set(cohort)) == 3 and cohort == sorted(cohort) for cohort in cohorts)
    assert cohorts == [run.context(number, 100).cohort.tolist() for number in range(20)]
    assert len({tuple(cohort) for cohort in cohorts}) > 5
    other = make_run(participation=0.5, seed=2)
    assert cohorts != [other.context(number, 100).cohort.tolist() for number in range(20)]
    assert make_run(participation=0.01).context(0, 1).cohort.tolist() != []


def test_methods_compared_see_the_same_cohorts_and_first_model() -> None:
    one, other = make_run(), make_run(algorithm=FLACC(LOCAL))
    assert torch.equal(one.start(5).models, other.start(5).models)
    assert one.context(3, 9).cohort.tolist() == other.context(3, 9).cohort.tolist()


def test_a_round_knows_the_shape_of_examples_and_the_number_of_classes() -> None:
    context = make_run(federation=blobs(shape=(2, 3), num_classes=4)).context(0, 1)
    assert (context.input_shape, context.num_outputs) == ((2, 3), 4)


def test_evaluation_is_as_often_as_asked_and_always_at_the_end() -> None:
    records = [record for _, record in make_run(evaluate_every=2).rounds(5)]
    assert [record.accuracy is not None for record in records] == [False, True, False, True, True]
    every = [record for _, record in make_run().rounds(5)]
    assert records[-1].accuracy == every[-1].accuracy


def agreements(run: Run) -> list[tuple[float | None, ...]]:
    """What each of a few rounds says of the clusters."""
    return [(r.num_clusters, r.ari, r.purity, r.nmi) for _, r in run.rounds(4)]


SERVED_WITHOUT_ASKING = [
    FLACC(LOCAL, n_sep=1),
    FedAvg(LOCAL),
    Restarts(FLHC(local=LOCAL, num_clusters=2, cluster_round=2), keep="most-balanced", restarts=2),
    Sharing(FLACC(LOCAL), kept=("*bias",)),
]


@pytest.mark.parametrize("method", SERVED_WITHOUT_ASKING, ids=lambda each: type(each).__name__)
def test_clusters_are_the_same_in_rounds_that_are_not_evaluated(method: Algorithm[Any]) -> None:
    run = make_run(algorithm=method, participation=0.5)
    seldom = agreements(replace(run, evaluate_every=3))
    assert seldom == agreements(run)
    assert None not in seldom[0]


ASKED = [IFCA(3, LOCAL), FedEM(3, LOCAL), Restarts(IFCA(3, LOCAL), restarts=2)]


@pytest.mark.parametrize("method", ASKED, ids=lambda each: type(each).__name__)
def test_clusters_that_clients_are_asked_for_are_known_in_evaluated_rounds_alone(
    method: Algorithm[Any],
) -> None:
    run = make_run(algorithm=method, participation=0.5)
    seldom, unknown = replace(run, evaluate_every=3), (None, None, None, None)
    assert agreements(seldom) == [unknown, unknown, *agreements(run)[2:]]
    _, record = next(seldom.rounds(4))
    assert Budget.of("purity=0").reached(record) is None
    assert Record.from_json(record.to_json()) == record


def test_traffic_is_that_of_the_round_without_evaluation() -> None:
    run = make_run(participation=0.5)
    (_, record), *_ = run.rounds(1)
    size = run.net.layout.num_values * 4
    assert record.bytes_down == 3 * size
    assert record.bytes_up == 3 * (size + 8)
    assert 0 < record.client_seconds <= record.seconds


def test_faults_are_recorded_and_the_round_goes_on_without_them() -> None:
    faults = Faults(drop=0.2, not_finite=0.2)
    run = make_run(faults=faults, limits=Limits(quorum=0.0))
    records = [record for _, record in run.rounds(6)]
    assert any(record.missing for record in records)
    assert any(record.refused for record in records)
    assert all(record.accuracy is not None for record in records)


def test_below_the_quorum_a_run_stops_and_names_the_round() -> None:
    run = make_run(limits=Limits(quorum=1.0), faults=Faults(drop=0.1), seed=3)
    with pytest.raises(QuorumError, match=r"round \d+: \d of 6 clients"):
        list(run.rounds(50))


def test_a_run_whose_training_diverges_stops_and_says_so() -> None:
    run = make_run(algorithm=FedAvg(LocalTraining(lr=1e30)))
    with pytest.raises(QuorumError, match=r"round 0: .* refused \(client \d: update: "):
        list(run.rounds(3))


def test_regression_runs_have_a_loss_and_no_accuracy() -> None:
    x = torch.linspace(-1, 1, 30)[:, None]
    federation = Federation.from_arrays([(x, 2 * x), (x, 2 * x)])
    net = umbel.Net(lambda: nn.Linear(1, 1), umbel.REGRESSION)
    *_, (_, record) = Run(FedAvg(LocalTraining(lr=0.3)), federation, net).rounds(20)
    assert record.accuracy is None
    assert record.loss is not None
    assert record.loss < 1e-4


def test_settings_out_of_range_are_refused() -> None:
    for name, value in [("seed", -1), ("participation", 0.0), ("evaluate_every", 0)]:
        with pytest.raises(UsageError, match=f"{name}: {value} is not"):
            make_run(**{name: value})
    with pytest.raises(UsageError, match="rounds: 0 is not 1 or more"):
        list(make_run().rounds(0))
