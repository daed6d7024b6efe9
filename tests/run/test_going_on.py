"""Runs in memory go on from a state of theirs, and from no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import umbel
from tests.federations import blobs
from tests.folder.saved import LOCAL, make_run
from umbel import IFCA, FedAvg, Restarts, Run, UsageError
from umbel.algorithms.base import State


def fedavg() -> Run:
    return make_run(algorithm=FedAvg(LOCAL))


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("1", "first: '1' is not a whole number"),
        (1, "first: 1 is not 0 without a state: give the state after the round"),
    ],
)
def test_the_round_to_come_is_a_number(first: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fedavg().rounds(2, first=first)


def with_models(models: torch.Tensor) -> State:
    return replace(fedavg().start(2), models=models)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("x", "state: 'str' is not the State of this run's method: give a state that"),
        (
            with_models(torch.zeros(1, 5)),
            r"models of the given state: shape: (1, 5) is not (K, 83)",
        ),
        (
            with_models(torch.zeros(1, 83).double()),
            "models of the given state: torch.float64 is not torch.float32, the type of",
        ),
        (
            make_run(algorithm=FedAvg(LOCAL), federation=blobs([9, 8])).start(2),
            "labels of the given state: shape: (2,) is not (6,), one for each client",
        ),
        (
            replace(fedavg().start(2), labels=torch.arange(6)),
            "labels of the given state: 5 is not in 0 to 0, the numbers of clusters",
        ),
    ],
    ids=["text", "network", "type", "federation", "labels"],
)
def test_a_state_that_does_not_fit_the_run_is_refused_before_a_round(state: Any, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        fedavg().rounds(2, state, 1)
    assert str(refused.value).startswith(said)


def test_a_state_of_another_method_is_refused_by_its_name() -> None:
    run = make_run(algorithm=IFCA(2, LOCAL))
    said = "state: 'State' is not the IFCAState of this run's method: give a state"
    with pytest.raises(UsageError, match=said):
        run.rounds(2, fedavg().start(2), 1)
    several = replace(run, algorithm=Restarts(IFCA(2, LOCAL), restarts=2, trial_rounds=1))
    with pytest.raises(UsageError, match="is not the RestartsState or IFCAState of this run's"):
        several.rounds(2, fedavg().start(2), 1)


def test_restarts_go_on_before_and_after_the_best_is_chosen() -> None:
    algorithm = Restarts(IFCA(2, LOCAL), restarts=2, trial_rounds=2)
    run = Run(algorithm, blobs(), umbel.Net(lambda: nn.Linear(6, 3)))
    whole = list(run.rounds(4))
    for number, (state, _) in enumerate(whole[:-1], start=1):
        rest = [record.untimed() for _, record in run.rounds(4, state, number)]
        assert rest == [record.untimed() for _, record in whole[number:]]
