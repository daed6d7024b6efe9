"""Runs with time: what clients see at each step, and what is recorded of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from umbel import CFLGP, FLACC, IFCA, FedAvg, LocalTraining, Oracle, Run, Time
from umbel.algorithms.base import Algorithm
from umbel.algorithms.feddrift import FedDrift
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.engines import EngineSettings
from umbel.run.drift import StepChanges, drift_of
from umbel.run.records import Record

CLIENTS, STEPS = 6, 4
LOCAL = LocalTraining(lr=0.5, epochs=2, batch_size=8)


def concept(client: int, step: int) -> int:
    """Two groups; those of the first change from step 2 on."""
    return int(client % 2 == 1 or step >= 2)


CONCEPTS = np.array([[concept(c, t) for t in range(STEPS + 1)] for c in range(CLIENTS)])


def examples(step: int, seed: int = 0) -> dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """The clients of a step; the last client comes in step 1, and client c3 leaves in step 3."""
    found = {}
    for client in range(CLIENTS):
        if (client == CLIENTS - 1 and step < 1) or (client == 3 and step >= 3):
            continue
        rng = np.random.default_rng([seed, client, step])
        x = rng.normal(size=(16 + 3 * client + step, 4)).astype(np.float32)
        right = (x[:, 0] > 0) ^ bool(concept(client, step))
        found[f"c{client}"] = x, right.astype(np.int64)
    return found


def federation(future: int = 0) -> Federation:
    """The clients; the examples of the last step may be other ones."""
    steps = [examples(step) for step in range(STEPS)]
    return Federation.over_time([*steps, examples(STEPS, future)], concepts=CONCEPTS)


def net() -> Net:
    return Net(lambda: nn.Linear(4, 2))


def records(
    method: Algorithm[Any], time: Time, clients: Federation | None = None, **more: Any
) -> list[Record]:
    run = Run(method, federation() if clients is None else clients, net(), time=time, **more)
    return [record.untimed() for _, record in run.rounds(STEPS * time.rounds)]


METHODS = [
    FedAvg(local=LOCAL),
    IFCA(num_clusters=2, local=LOCAL),
    FLACC(local=LOCAL),
    CFLGP(num_clusters=2, local=LOCAL),
    FedDrift(local=LOCAL),
    Oracle(local=LOCAL),
]


class TestEngines:
    @pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
    def test_give_the_same(self, method: Algorithm[Any]) -> None:
        time = Time(rounds=2, keep="decay")
        kinds = [EngineSettings(name=n) for n in ("vectorised", "sequential")]
        first, *others = [
            records(method, time, engine=each) for each in (*kinds, EngineSettings(workers=2))
        ]
        for other in others:
            for one, same in zip(first, other, strict=True):
                assert one.loss == pytest.approx(same.loss, rel=1e-4)
                assert one.clusters == same.clusters
                assert one.gradient_evaluations == same.gradient_evaluations


class TestSteps:
    @pytest.mark.parametrize(("keep", "first"), [("all", 0), ("window", 2)])
    def test_a_step_is_a_run_on_what_is_kept(self, keep: Any, first: int) -> None:
        time = Time(rounds=2, keep=keep)
        run = Run(FedAvg(local=LOCAL), federation(), net(), time=time)
        states = list(run.rounds(6))
        # Step 2 alone, from the state before it, on the federation of that step.
        here = Run(FedAvg(local=LOCAL), federation().at(2, first), net())
        begun = here.rounds(6, states[3][0], 4)
        for (state, record), (there, other) in zip(states[4:], begun, strict=True):
            assert torch.equal(state.models, there.models)
            assert record.loss == other.loss
            assert record.gradient_evaluations == other.gradient_evaluations

    def test_nothing_is_seen_of_the_future(self) -> None:
        runs = [
            Run(m, federation(future), net(), time=Time(rounds=2)).rounds(8)
            for m in (FedDrift(local=LOCAL),)
            for future in (0, 1)
        ]
        for (one, record), (other, changed) in zip(*runs, strict=True):
            assert torch.equal(one.models, other.models)
            assert (record.loss == changed.loss) == (record.step != STEPS - 1)

    def test_decay_keeps_a_share_of_each_step(self) -> None:
        shares = Time(keep="decay", decay=0.5).shares(2, STEPS)
        assert shares.tolist() == [0.25, 0.5, 1, 0, 0]
        train = federation().train
        counts = train.counts(np.array([0]), shares[None].numpy())
        assert counts.tolist() == [[4, 9, 18, 0, 0]]  # of 16, 17 and 18
        x, _ = train.during(np.array([0]), shares[None].numpy()).of(0)
        whole, _ = train.of(0)
        assert torch.equal(x, torch.cat([whole[:4], whole[16:25], whole[33:51]]))

    def test_only_clients_with_examples_are_asked_and_counted(self) -> None:
        found = records(FedAvg(local=LOCAL), Time(rounds=1, keep="window"))
        clusters = [record.clusters or () for record in found]
        assert [[c for c, label in enumerate(each) if label < 0] for each in clusters] == [
            [5],
            [],
            [],
            [3],
        ]
        assert not any(record.missing or record.refused for record in found)

    def test_goes_on_in_the_middle_of_a_step(self, tmp_path: Path) -> None:
        run = Run(FedDrift(local=LOCAL), federation(), net(), time=Time(rounds=3))
        whole = [record.untimed() for _, record in run.rounds(12)]
        for _, record in run.rounds(12, folder=tmp_path / "run"):
            if record.round == 7:
                break
        result = run.save(tmp_path / "run", 12)
        assert [record.untimed() for record in result.records] == whole
        accuracies = [record.accuracy for record in whole[2::3]]
        assert result.so_far.accuracy == pytest.approx(np.mean(np.array(accuracies, dtype=float)))

    def test_results_of_clients_are_of_the_steps_that_were_done(self, tmp_path: Path) -> None:
        time = Time(rounds=1, keep="window")
        run = Run(Oracle(local=LOCAL), federation(), net(), time=time, metrics=("macro-f1",))
        result = run.save(tmp_path / "run", 2)
        assert [client.group for client in result.clients] == [*"010101"]
        assert [client.examples for client in result.clients] == [17, 20, 23, 26, 29, 32]
        means = [record.measures["macro-f1"] for record in result.records]
        found = result.so_far.measures["macro-f1"]
        assert found == pytest.approx(np.mean(np.array(means, dtype=float)))
        state: Any = result.state
        assert state.concepts.shape == (CLIENTS, STEPS + 1)

    def test_newcomers_are_assigned_by_what_they_keep(self) -> None:
        run = Run(IFCA(num_clusters=2, local=LOCAL), federation(), net(), time=Time(rounds=2))
        *_, (state, _) = run.rounds(2)
        # The losses of a newcomer with the same examples are those that the round begins with.
        found = run.assign(state, rounds=2)
        alone = replace(run, federation=federation().at(0), time=None).assign(state, rounds=2)
        assert torch.equal(found.scores, alone.scores[found.clients])


class TestRefusals:
    def test_time_for_clients_without_steps(self) -> None:
        with pytest.raises(UsageError, match=r"time: .*without steps.*over_time"):
            Run(FedAvg(), federation().at(0), net(), time=Time())

    def test_steps_without_time(self) -> None:
        with pytest.raises(UsageError, match=r"umbel\.Time\(\).*federation\.at\(step\)"):
            Run(FedAvg(), federation(), net())

    def test_a_plain_run_of_a_step_in_which_a_client_has_no_examples(self) -> None:
        run = Run(FedAvg(local=LOCAL), federation().at(3, 3), net())
        with pytest.raises(UsageError, match=r"client c3: 0.*positive number of training examples"):
            run.rounds(1)

    def test_more_rounds_than_steps(self) -> None:
        run = Run(FedAvg(local=LOCAL), federation(), net(), time=Time(rounds=2))
        with pytest.raises(UsageError, match=r"rounds.*9.*at most 8"):
            next(run.rounds(9))

    def test_one_step_alone(self) -> None:
        with pytest.raises(UsageError, match=r"steps.*1.*two or more"):
            Federation.over_time([examples(0)])

    def test_concepts_of_another_shape(self) -> None:
        with pytest.raises(UsageError, match=r"concepts.*\(6, 2\)"):
            Federation.over_time([examples(1), examples(2)], concepts=CONCEPTS)


def ended(step: int, *clusters: int) -> Record:
    return Record(step, step=step, clusters=clusters)


class TestDrift:
    def test_counts_what_happened_to_clusters(self) -> None:
        steps = [
            ended(0, 0, 0, 0, 1, -1),
            ended(1, 0, 0, 1, 2, -1),  # client 2 leaves its cluster: a split
            ended(2, 0, 0, 0, 1, 2),  # it comes back: a merge; a newcomer alone: a birth
            ended(3, 0, 0, 0, -1, 1),  # client 3 is gone with its cluster
        ]
        assert drift_of(steps).changes == (
            StepChanges(1, moves=1, splits=1),
            StepChanges(2, moves=1, births=1, merges=1),
            StepChanges(3, deaths=1),
        )

    def test_measures_delays_and_false_alarms(self) -> None:
        concepts = np.array([[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1]])
        steps = [
            ended(0, 0, 0, 0, 1),
            ended(1, 0, 0, 0, 1),  # client 2 has changed, and is still with the others
            ended(2, 0, 0, 1, 1),  # found, one step late
            ended(3, 0, 1, 1, 1),  # client 1 is taken for one of the others
        ]
        found = drift_of(steps, concepts)
        assert (found.drifts, found.found, found.delay, found.false_alarms) == (1, 1, 1.0, 1)
