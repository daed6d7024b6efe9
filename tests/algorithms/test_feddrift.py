"""FedDrift's drifts, new models and merges, worked by hand; and Adaptive-FedAvg's rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.algorithms.test_clove import HALF_SQUARED, STEP
from umbel.algorithms.adaptive_fedavg import AdaptiveFedAvg
from umbel.algorithms.base import Algorithm
from umbel.algorithms.fedavg import FedAvg
from umbel.algorithms.feddrift import FedDrift, FedDriftState
from umbel.algorithms.fedgroup import FedGroup
from umbel.algorithms.oracle import Oracle
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.result.run import Run
from umbel.run.membership import Event, Membership
from umbel.run.records import Record
from umbel.run.time import Time
from umbel.server.aggregation import Averaging

# b_i in each step; the last one is for the test alone.
TARGETS: list[list[float]] = [[0, 0, 0], [10, 12, 0], [10, 10, 0], [10, 10, 0]]


def four() -> nn.Module:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 4.0)
    return layer


def slopes(targets: list[list[float]], concepts: Any = None) -> Federation:
    """Each client has one example x = 1, y = b_i in a step."""
    steps = [[(torch.ones(1, 1), torch.tensor([[float(b)]])) for b in step] for step in targets]
    return Federation.over_time(steps, concepts=concepts)


def states(
    method: Algorithm[Any], targets: list[list[float]] = TARGETS, **more: Any
) -> list[tuple[Any, Record]]:
    """The state after each step of one round, and its record."""
    net = Net(four, HALF_SQUARED)
    run = Run(method, slopes(targets, **more), net, time=Time(rounds=1))
    return list(run.rounds(len(targets) - 1))


def drift(**settings: Any) -> FedDrift:
    return FedDrift(scores="loss", local=STEP, **settings)


def models(state: FedDriftState) -> list[float]:
    return [round(float(value), 4) for value in state.models[:, 0]]


class TestFedDrift:
    def test_a_client_that_drifts_gets_a_copy_of_the_best_model(self) -> None:
        # theta <- (theta + b) / 2. Step 0: 4 becomes 2. Step 1: scores of -32 and -50 after -2 are
        # drifts, and the copies of 2 become 6 and 7; model 0 keeps what was given to it.
        state, record = states(drift(delta=4.0))[1]
        assert models(state) == [1, 6, 7]
        assert state.labels.tolist() == [1, 2, 0]
        assert record.measures["drifted"] == record.measures["models_born"] == 2

    def test_models_that_fit_each_other_are_merged_by_their_numbers_of_batches(self) -> None:
        # On b = 10 both take 7. Model 6 has one batch, and 7 has three: their distance is 10/3, and
        # (6 + 3 * 7) / 4 = 6.75 is trained on 10, 10 and on 12, 10: 8.375 and 8.875.
        state, record = states(drift(delta=4.0))[2]
        assert models(state) == [0.5, 8.625]
        assert state.labels.tolist() == [1, 1, 0]
        assert record.measures["models_merged"] == 1

    def test_models_that_do_not_fit_are_kept(self) -> None:
        # 6 becomes 8; 7 becomes 8.5 with one example, and 9 with two.
        state, _ = states(drift(delta=4.0, merge_delta=3.0))[2]
        assert models(state) == [0.5, 8.0, 8.8333]
        assert state.labels.tolist() == [2, 2, 0]

    def test_isolated_models_are_neither_chosen_nor_merged(self) -> None:
        state, _ = states(drift(delta=4.0, isolation=2))[2]
        assert state.labels.tolist() == [1, 2, 0]
        assert models(state) == [0.5, 8.0, 9.0]

    def test_eager_gives_all_that_drift_one_model(self) -> None:
        state, record = states(drift(delta=4.0, eager=True))[1]
        assert models(state) == [1, 6.5]
        assert state.labels.tolist() == [1, 1, 0]
        assert record.measures["models_born"] == 1

    def test_without_a_free_model_a_client_stays(self) -> None:
        state, _ = states(drift(delta=4.0, max_models=2))[1]
        assert state.labels.tolist() == [1, 0, 0]

    def test_the_model_used_longest_ago_is_given_up(self) -> None:
        # Everyone leaves model 0 in step 1; its place is free when client 0 drifts again.
        targets: list[list[float]] = [[0, 0], [10, 10], [30, 10], [30, 10]]
        state, _ = states(drift(delta=4.0, eager=True, max_models=2), targets)[2]
        assert state.labels.tolist() == [0, 1]
        assert state.owners.tolist() == [[-1, 1, 0, -1], [-1, 1, 1, -1]]

    def test_batches_of_a_model_that_was_given_up_weigh_in_no_merge(self) -> None:
        # Client 0 drifts in each step, and in the last one takes the place of its first model.
        b: list[list[float]] = [[0, 0, 0], [10, 0, 0], [30, 0, 0], [60, 0, 0], [60, 0, 0]]
        state, _ = states(drift(delta=1.0, max_models=3), b)[3]
        assert state.owners[0].tolist() == [0, -1, 2, 1, -1]
        assert models(state) == [0.25, 39, 24]

    def test_the_whole_of_a_short_run_without_time_is_fedavg(self) -> None:
        net, federation = Net(four, HALF_SQUARED), slopes(TARGETS).at(1)
        runs = [Run(m, federation, net).rounds(3) for m in (drift(), FedAvg(local=STEP))]
        for (one, _), (other, _) in zip(*runs, strict=True):
            assert torch.equal(one.models, other.models)

    def test_a_newcomer_takes_the_best_model_and_has_not_drifted(self) -> None:
        rows = [{"a": 0.0, "b": 0.0}, {"a": 10.0, "b": 0.0}, {"a": 10.0, "b": 0.0, "c": 10.0}]
        steps = [
            {name: (torch.ones(1, 1), torch.tensor([[b]])) for name, b in row.items()}
            for row in [*rows, rows[2]]
        ]
        run = Run(
            drift(delta=4.0), Federation.over_time(steps), Net(four, HALF_SQUARED), time=Time(1)
        )
        *_, (state, record) = run.rounds(3)
        assert state.labels.tolist() == [1, 0, 1]
        assert record.measures["drifted"] == 0


def in_steps(rows: list[dict[str, float]]) -> Federation:
    """One example x = 1, y = b a step, of the clients that are named in it."""
    steps = [
        {name: (torch.ones(1, 1), torch.tensor([[float(b)]])) for name, b in row.items()}
        for row in rows
    ]
    return Federation.over_time(steps)


def last_state(rows: list[dict[str, float]], **more: Any) -> Any:
    """The state of FedDrift after three steps of one round, by the targets of clients."""
    net, method = Net(four, HALF_SQUARED), drift(delta=4.0)
    return [*Run(method, in_steps(rows), net, time=Time(rounds=1), **more).rounds(3)][-1][0]


def test_only_batches_that_are_there_weigh_in_a_merge() -> None:
    # As in the merge of 6 with one batch and of 7 with three, beside a client without examples in
    # steps 1 and 2, which is in the cluster of model 0 and counts for nothing.
    rows = [dict(zip("abcd", [*row, 0.0], strict=True)) for row in TARGETS[:1]]
    rows += [dict(zip("abc", row, strict=True)) for row in TARGETS[1:]]
    state = last_state(rows)
    assert state.heard.sum(0).tolist() == [4, 3, 3, 0]
    assert models(state) == [0.5, 8.625]


def test_a_member_that_comes_at_a_new_step_has_not_drifted() -> None:
    rows = [{"a": 0.0, "b": 0.0, "c": 10.0}] * 2 + [{"a": 10.0, "b": 0.0, "c": 30.0}] * 2
    comes = Membership((Event(2, joins=("c",)),))
    state = last_state(rows, membership=comes)
    assert state.drifted.tolist() == [True, False, False]


def test_a_model_whose_clients_are_forgotten_is_kept_as_it_was_in_a_merge() -> None:
    # As in the merge of 6 and 7; client d drifts in step 1, too, to 16, and is forgotten then.
    last = [0.0, 30.0, 30.0, 30.0]
    rows = [dict(zip("abcd", [*r, b], strict=True)) for r, b in zip(TARGETS, last, strict=True)]
    goes = Membership((Event(2, leaves=("d",)),), forget_after=0)
    state = last_state(rows, membership=goes)
    assert models(state) == [0.5, 8.625, 16]
    assert state.labels.tolist() == [1, 1, 0]


def test_shared_parameters_are_refused() -> None:
    shared = Averaging(shared=("weight",))
    for method in (drift(averaging=shared), Oracle(local=STEP, averaging=shared)):
        with pytest.raises(UsageError, match=r"averaging\.shared"):
            states(method, concepts=[[0] * 4, [1] * 4, [0] * 4])


@pytest.mark.parametrize(("migrate", "labels"), [(False, [0, 0, 1]), (True, [0, 1, 1])])
def test_fedgroup_places_clients_anew_at_each_step_if_told(
    migrate: bool, labels: list[int]
) -> None:
    # From 4, updates towards 10 and towards -10 are opposite; client 1 changes sides.
    targets: list[list[float]] = [[10, 10, -10], [10, -10, -10], [10, -10, -10]]
    method = FedGroup(2, first_steps=1, migrate=migrate, local=STEP)
    run = Run(method, slopes(targets), Net(four, HALF_SQUARED), time=Time(rounds=1, keep="window"))
    *_, (state, _) = run.rounds(2)
    found = state.labels.tolist()
    assert [int(label != found[0]) for label in found] == labels


def test_the_oracle_trains_a_concept_on_all_its_examples() -> None:
    # Client 0 has b = 0, then 8; client 1 has 8, then 8. Both models begin at 4.
    made = states(Oracle(local=STEP), [[0, 8], [8, 8], [8, 8]], concepts=[[0, 1, 1], [1, 1, 1]])
    assert models(made[0][0]) == [2, 6]
    assert models(made[1][0]) == [1, 7]
    assert made[1][0].labels.tolist() == [1, 1]


def test_adaptive_fedavg_follows_the_growth_of_the_variance() -> None:
    rate, model, mean, deviation, ratio = 1.0, 4.0, 0.0, 0.0, 0.0
    rng = np.random.default_rng(0)
    targets = [[float(b)] for b in rng.normal(0, 5, 6)]
    found = states(AdaptiveFedAvg(local=STEP), targets)
    for t, ((state, record), (b,)) in enumerate(zip(found, targets, strict=False), start=1):
        seen = [each[0] for each in targets[:t]]
        model += 0.5 * rate * (float(np.mean(seen)) - model)
        was_mean = mean / (1 - 0.7 ** (t - 1)) if t > 1 else 0.0
        was = deviation / (1 - 0.3 ** (t - 1)) if t > 1 else 0.0
        deviation = 0.3 * deviation + 0.7 * (model - was_mean) ** 2
        mean = 0.7 * mean + 0.3 * model
        growth = deviation / (1 - 0.3**t) / was if was else 1.0
        ratio = 0.7 * ratio + 0.3 * growth
        rate = min(1.0, ratio / (1 - 0.7**t) / t)
        assert float(state.models[0, 0]) == pytest.approx(model, rel=1e-5), b
        assert record.measures["rate"] == pytest.approx(rate, rel=1e-5)
