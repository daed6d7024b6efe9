"""Clients that train in their own way: other epochs, steps, learning rates or mini-batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.federations import blobs, mlp
from tests.flower.small import SMALL, grid_of, last_state
from umbel.algorithms import CFLGP, IFCA, FedAvg, LocalOnly, Sattler
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.client.optimizers import SGD
from umbel.client.work import ChooseByLoss, Gradient, LocalTraining, MeanLoss, TrainAndGradient
from umbel.engines.choice import EngineSettings
from umbel.engines.own_training import OwnTraining
from umbel.experiment.toml_file import read
from umbel.result.run import Run, resume
from umbel.testing import assert_same_state

LOCAL = LocalTraining(lr=0.1, epochs=2, batch_size=8, lr_decay=0.5)
FEDERATION = replace(blobs((5, 17, 9, 26)), names=("a", "b", "c", "d"))
SLOW, LONG = OwnTraining(("a", "d"), lr=0.02), OwnTraining(("c",), epochs=5, batch_size="all")


def run_of(method: Any, *own: OwnTraining, **more: Any) -> Run:
    net = mlp(dtype=torch.float64)
    return Run(method, FEDERATION, net, **{"seed": 3, "own_training": own, **more})


def models(method: Any, *own: OwnTraining, rounds: int = 3, **more: Any) -> torch.Tensor:
    *_, (state, _) = run_of(method, *own, **more).rounds(rounds)
    return state.models


def test_each_client_trains_in_its_own_way_and_the_others_as_the_method_says() -> None:
    method, engine = LocalOnly(LOCAL), EngineSettings("sequential")
    found = models(method, SLOW, LONG, engine=engine)
    plain = models(method, engine=engine)
    slow = models(LocalOnly(replace(LOCAL, lr=0.02)), engine=engine)
    long = models(LocalOnly(replace(LOCAL, epochs=5, batch_size="all")), engine=engine)
    assert torch.equal(found, torch.stack([slow[0], plain[1], long[2], slow[3]]))
    batched = models(method, SLOW, LONG, engine=EngineSettings("vectorised"))
    torch.testing.assert_close(found, batched)


def test_a_work_is_changed_where_it_trains() -> None:
    own = OwnTraining(("a",), lr=0.4, steps=6)
    later = LOCAL.at_round(2)  # at a quarter of the rate
    expected = replace(later, lr=0.1, steps=6)
    assert own.of(later, LOCAL) == expected
    assert own.of(ChooseByLoss(later), LOCAL) == ChooseByLoss(expected)
    both = TrainAndGradient(later, Gradient(4))
    assert own.of(both, LOCAL) == TrainAndGradient(expected, Gradient(4))
    assert own.of(MeanLoss(), LOCAL) == MeanLoss()
    # A phase of three times the epochs, and one with a number of steps of its own.
    assert own.of(replace(LOCAL, epochs=6), LOCAL) == replace(LOCAL, epochs=6, lr=0.4, steps=18)
    assert own.of(replace(LOCAL, steps=9), LOCAL) == replace(LOCAL, lr=0.4, steps=9)
    stepped = LocalTraining(steps=4, optimizer=SGD(momentum=0.5))
    assert OwnTraining(("a",), epochs=3).of(stepped, stepped) == replace(
        stepped, steps=None, epochs=3
    )


def test_costs_are_those_of_what_clients_do() -> None:
    # Without own ways 57 examples twice; now 9 of them five times.
    *_, (_, plain) = run_of(FedAvg(LOCAL)).rounds(1)
    *_, (_, record) = run_of(FedAvg(LOCAL), LONG).rounds(1)
    assert plain.gradient_evaluations == 2 * 57
    assert record.gradient_evaluations == 2 * 48 + 5 * 9
    assert record.bytes_up == plain.bytes_up


TRAIN = [FedAvg(LOCAL), IFCA(local=LOCAL), CFLGP(local=LOCAL, send="update")]


@pytest.mark.parametrize("method", TRAIN, ids=lambda method: type(method).__name__)
def test_no_method_ignores_it(method: Any) -> None:
    assert not torch.equal(models(method, SLOW), models(method))
    same = OwnTraining(("a", "b"), lr=0.1, epochs=2, batch_size=8)
    torch.testing.assert_close(models(method, same), models(method))


def test_a_cohort_without_these_clients_is_as_ever() -> None:
    method = FedAvg(LOCAL)
    (asked,) = run_of(method, participation=0.25).context(0, 1).cohort.tolist()
    plain = models(method, rounds=1, participation=0.25)
    for client, name in enumerate(FEDERATION.names):
        found = models(method, OwnTraining((name,), lr=0.01), rounds=1, participation=0.25)
        assert torch.equal(found, plain) == (client != asked)


def test_a_folder_keeps_it_and_a_resumed_run_ends_the_same(tmp_path: Path) -> None:
    run = run_of(FedAvg(LOCAL), SLOW, LONG)
    *_, (expected, _) = run.rounds(4)
    for _, record in run.rounds(4, folder=tmp_path):
        if record.round == 1:
            break
    assert read(tmp_path / "experiment.toml").own_training == (SLOW, LONG)
    with pytest.raises(UsageError, match="own_training"):
        resume(tmp_path, run_of(FedAvg(LOCAL), SLOW))
    assert_same_state(resume(tmp_path, run).state, expected)


@pytest.mark.parametrize(
    ("method", "own", "message"),
    [
        (
            FedAvg(),
            OwnTraining(("bb",), lr=1),
            r"own_training\[1\].*: 'bb' is not a client, .*did you",
        ),
        (FedAvg(), OwnTraining(("a",), lr=1), r"own_training\[1\].*: 'a' is not a client, named"),
        (CFLGP(), LONG, "'CFLGP' is not a method whose clients train by `local`"),
        (Sattler(send="gradient"), LONG, "'Sattler' is not a method whose clients train"),
    ],
)
def test_what_does_not_fit_is_refused(method: Any, own: OwnTraining, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        models(method, SLOW, own)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clients": ()}, "clients: .* is not the names of one client or more"),
        ({"epochs": 0}, "epochs: 0 is not 1 or more"),
        ({"steps": 0}, "steps: 0 is not 1 or more"),
        ({"lr": 0}, "lr: 0.* is not more than 0"),
        ({"batch_size": 0}, "batch_size: 0 is not 1 or more"),
        ({"epochs": 1, "steps": 1}, "steps: 1 is not allowed with epochs"),
    ],
)
def test_values_out_of_range_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        OwnTraining(**{"clients": ("a",), **given})


def test_a_mini_batch_of_one_is_refused_where_a_network_cannot_have_it() -> None:
    net = Net(lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    method, own = FedAvg(replace(LOCAL, batch_size="all")), OwnTraining(("b",), batch_size=4)
    with pytest.raises(UsageError, match="client b: its 17 examples leave a mini-batch of one"):
        next(Run(method, FEDERATION, net, own_training=(own,)).rounds(1))


def test_nodes_of_flower_train_as_the_method_says(tmp_path: Path) -> None:
    experiment = replace(SMALL, own_training=(OwnTraining(("0",), lr=0.01),))
    last_state(experiment, None)
    with pytest.raises(UsageError, match=r"own_training: .*in this process"):
        last_state(experiment, grid_of(experiment, tmp_path))
