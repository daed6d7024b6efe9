"""Personal models on top of any method: clients tune what they are served where that helps them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

import umbel
from tests.run.tuned import EXPERIMENT, LOCAL, PERSONAL, ended, evaluated, of_each, opened
from umbel.algorithms import (
    FLACC,
    IFCA,
    FedAvg,
    PFedMe,
    Restarts,
)
from umbel.algorithms.base import Algorithm
from umbel.checks import UsageError
from umbel.client.work import MEMORY, LocalTraining, PersonalTraining
from umbel.data.federation import Federation
from umbel.data.scenarios.linear_regressions import LinearRegressions
from umbel.data.sources import Sources
from umbel.engines import EngineSettings, Sequential
from umbel.flow import Engine, Replies, Request, Rows
from umbel.networks import Linear
from umbel.run import fine_tuning as tuning
from umbel.seeds import Stream, client_seeds


@pytest.mark.parametrize(
    "algorithm",
    [
        FedAvg(LOCAL),
        Restarts(IFCA(local=LOCAL, num_clusters=2), restarts=2, trial_rounds=2),
        FLACC(LOCAL, n_sep=1),
        PFedMe(local=LOCAL),
    ],
    ids=lambda each: type(each).__name__,
)
def test_on_top_of_any_method_nobody_is_worse_off_on_validation(algorithm: Algorithm[Any]) -> None:
    run = opened(algorithm=algorithm)
    scores = ended(run)
    tuned = scores.tuning
    assert tuned is not None
    plain = replace(run, personal=None)
    *_, (_, _, before) = plain.scored_rounds(3, plain.start(3), 0)
    assert before is not None
    assert tuned.loss == pytest.approx(before.loss, nan_ok=True)
    served = evaluated(run, of_each(before), "validation")["loss"].numpy()
    chosen = evaluated(run, of_each(scores), "validation")["loss"].numpy()
    assert (chosen <= served + 1e-6).all()
    assert tuned.validation_loss == pytest.approx(chosen, rel=1e-5)
    kept = tuned.epochs == 0
    assert (chosen[~kept] < served[~kept]).all()
    assert np.array_equal(scores.accuracy[kept], before.accuracy[kept])
    assert torch.equal(
        of_each(scores)[torch.from_numpy(kept)], of_each(before)[torch.from_numpy(kept)]
    )
    on_test = evaluated(run, of_each(scores), "test")
    assert scores.accuracy == pytest.approx(on_test["right"].numpy())
    assert scores.loss == pytest.approx(on_test["loss"].numpy(), rel=1e-5)
    assert np.array_equal(scores.labels, before.labels)


def test_each_number_of_epochs_goes_on_from_the_one_before() -> None:
    run = opened(personal=replace(PERSONAL, epochs=(3, 1), interpolate=(0.5, 1.0)))
    scores = ended(run)
    assert scores.tuning is not None
    base = scores.served.adapted_from
    assert base is not None
    everyone = torch.arange(8)
    served = base.take(everyone)
    seeds = [client_seeds(run.seed, Stream.CLIENT, 3 + n, everyone.numpy()) for n in range(2)]
    engine = Sequential(run.net, run.federation)
    theta, models = served, {(0, 0.0): served}
    for epochs, stretch, drawn in ((1, 1, seeds[0]), (3, 2, seeds[1])):
        work = LocalTraining(lr=0.1, epochs=stretch, batch_size=10)
        asked = Request(work, everyone, drawn, {}, {"theta": Rows(theta, everyone)})
        theta = theta + engine.send(asked).columns["update"]
        models |= {(epochs, weight): served + weight * (theta - served) for weight in (0.5, 1.0)}
    losses = {c: evaluated(run, m, "validation")["loss"].tolist() for c, m in models.items()}
    for client in range(8):
        best = min(losses, key=lambda choice: losses[choice][client])
        chosen = int(scores.tuning.epochs[client]), float(scores.tuning.weight[client])
        assert chosen == best
        torch.testing.assert_close(
            of_each(scores)[client], models[best][client], rtol=1e-4, atol=1e-5
        )
    assert len(set(scores.tuning.epochs.tolist())) > 1  # or nothing was shown


def test_tuning_that_diverges_changes_nothing() -> None:
    plain = opened(personal=None, scenario=replace(EXPERIMENT.scenario))
    federation = plain.federation.with_validation(0.25, 0)
    wild = opened(personal=replace(PERSONAL, lr=1e30))
    assert torch.equal(wild.federation.train.x, federation.train.x)
    scores = ended(wild)
    assert scores.tuning is not None
    assert scores.tuning.epochs.tolist() == [0] * 8
    expected = list(replace(plain, federation=federation).rounds(3))[-1][1]
    found = list(wild.rounds(3))[-1][1]
    assert found.accuracy == expected.accuracy
    assert found.measures["tuned_share"] == 0
    assert found.refused == {}


def test_only_the_named_parameters_are_tuned() -> None:
    run = opened(personal=replace(PERSONAL, parameters=("3.*",)))
    scores = ended(run)
    base = scores.served.adapted_from
    assert base is not None
    moved = of_each(scores) != base.take(torch.arange(8))
    assert moved.any()
    assert not moved[:, ~run.net.layout.mask(("3.*",))].any()


def test_a_masked_step_is_one_of_the_named_parameters_alone() -> None:
    run = opened()
    theta = run.net.new(0)
    work = PersonalTraining(LocalTraining(lr=0.1, epochs=1, batch_size="all"), ("3.bias",))
    asked = Request(work, torch.tensor([2]), [0], {"theta": theta})
    new = Sequential(run.net, run.federation).send(asked).columns[MEMORY][0, 0]
    x, y = run.federation.train.of(2)
    module = run.net.module(theta).train()
    torch.nn.functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
    expected = dict(run.net.layout.tensors(theta))
    gradient = dict(module.named_parameters())["3.bias"].grad
    assert gradient is not None
    expected["3.bias"] = expected["3.bias"] - 0.1 * gradient
    for name, values in run.net.layout.tensors(new).items():
        torch.testing.assert_close(values, expected[name])


@pytest.mark.parametrize("name", ["sequential", "vectorised"])
def test_engines_come_to_the_same_choices(name: Any) -> None:
    run = opened()
    expected = ended(replace(run, engine=EngineSettings("vectorised", "cpu", workers=2)))
    found = ended(replace(run, engine=EngineSettings(name)))
    assert found.tuning is not None
    assert expected.tuning is not None
    assert found.tuning.validation_loss == pytest.approx(expected.tuning.validation_loss, rel=1e-3)
    assert found.loss == pytest.approx(expected.loss, rel=1e-2)


def test_clients_in_blocks_come_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ended(opened())
    monkeypatch.setattr(tuning, "BLOCK_BYTES", 3 * 2 * 4 * opened().net.layout.num_values)
    found = ended(opened())
    assert found.tuning is not None
    assert expected.tuning is not None
    assert found.tuning.epochs.tolist() == expected.tuning.epochs.tolist()
    assert found.loss == pytest.approx(expected.loss, rel=1e-4)
    torch.testing.assert_close(of_each(found), of_each(expected), rtol=1e-4, atol=1e-5)


@dataclass
class Deaf:
    """Some clients do not answer one kind of work about one split."""

    engine: Engine
    kind: str
    split: str
    absent: tuple[int, ...]

    def send(self, request: Request) -> Replies:
        replies = self.engine.send(request)
        if type(request.work).__name__ != self.kind or request.work.split != self.split:
            return replies
        there = [n for n, c in enumerate(replies.clients.tolist()) if c not in self.absent]
        return replies.pick(torch.tensor(there, dtype=torch.long))


@pytest.mark.parametrize(
    ("kind", "split"), [("PersonalTraining", "train"), ("PersonalEvaluation", "validation")]
)
def test_who_does_not_answer_keeps_what_it_is_served(kind: str, split: str) -> None:
    run, absent = opened(), (1, 4)
    deaf = Deaf(Sequential(run.net, run.federation), kind, split, absent)
    scores, whole = ended(replace(run, engine=deaf)), ended(run)
    assert scores.tuning is not None
    assert whole.tuning is not None
    kept = list(absent)
    assert scores.tuning.epochs[kept].tolist() == [0] * len(kept)
    assert np.array_equal(scores.accuracy[kept], scores.tuning.accuracy[kept])
    others = [client for client in range(8) if client not in absent]
    assert scores.tuning.epochs[others].tolist() == whole.tuning.epochs[others].tolist()


def test_who_does_not_answer_the_test_has_no_score() -> None:
    run = opened()
    whole = ended(run)
    assert whole.tuning is not None
    tuned = tuple(np.flatnonzero(whole.tuning.epochs)[:2].tolist())
    deaf = Deaf(Sequential(run.net, run.federation), "PersonalEvaluation", "test", tuned)
    scores = ended(replace(run, engine=deaf))
    assert np.flatnonzero(np.isnan(scores.loss)).tolist() == list(tuned)


def test_a_client_without_validation_examples_keeps_what_it_is_served() -> None:
    run = opened()
    old = run.federation
    assert old.validation is not None
    validation = [old.validation.of(c) for c in range(8)]
    validation[3] = (validation[3][0][:0], validation[3][1][:0])
    federation = Federation.from_arrays(
        [old.train.of(c) for c in range(8)],
        [old.test.of(c) for c in range(8)],
        validation=validation,
        num_classes=10,
    )
    scores = ended(replace(run, federation=federation))
    assert scores.tuning is not None
    assert scores.tuning.epochs[3] == 0
    assert np.isnan(scores.tuning.validation_loss[3])
    assert scores.tuning.epochs.any()


def test_regressions_are_tuned_by_their_loss() -> None:
    run = opened(
        scenario=replace(LinearRegressions(), examples=60, test_examples=20, clients=6),
        model=Linear(),
        algorithm=FedAvg(LocalTraining(epochs=1)),
    )
    scores = ended(run)
    assert scores.tuning is not None
    assert scores.tuning.epochs.any()
    assert np.nanmean(scores.loss) < np.nanmean(scores.tuning.loss)
    assert np.isnan(scores.accuracy).all()


def test_which_examples_are_set_apart_does_not_depend_on_the_other_clients() -> None:
    federation = umbel.scenario("rotated-digits", clients=4)
    found, alone = federation.with_validation(0.2, 3), federation.pick([2]).with_validation(0.2, 3)
    assert found.validation is not None
    assert alone.validation is not None
    assert torch.equal(found.validation.of(2)[0], alone.validation.of(0)[0])
    assert torch.equal(found.test.x, federation.test.x)
    with pytest.raises(UsageError, match="federation: has validation examples already"):
        found.with_validation(0.2)


def test_in_python_examples_are_set_apart_as_in_an_experiment() -> None:
    run = opened()
    federation = EXPERIMENT.scenario.build(0, Sources.default())
    assert federation.validation is None
    same = umbel.Run(run.algorithm, federation, run.net, personal=PERSONAL)
    assert [record.untimed() for _, record in same.rounds(2)] == [
        record.untimed() for _, record in run.rounds(2)
    ]
    assert replace(same, participation=0.5).federation is same.federation
    whole = federation.with_validation(0.5)
    assert replace(same, federation=whole).federation is whole


def test_newcomers_need_no_validation_examples_to_be_assigned() -> None:
    run = opened()
    *_, (state, _) = run.rounds(2)
    newcomers = umbel.scenario("rotated-digits", clients=4, seed=5)
    assigned = replace(run, federation=newcomers).assign(state)
    assert len(assigned.labels) == 4
    plain = umbel.Run(run.algorithm, newcomers, run.net)
    torch.testing.assert_close(assigned.scores, plain.assign(state).scores)
