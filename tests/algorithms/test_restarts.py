"""Several starts side by side: hand-worked rounds, and what earlier versions wrote of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from tests.federations import answered, context, requested, setup
from umbel.algorithms import CFLGP, FLACC, IFCA, FedAvg, FedEM, Joint, Restarts, Sharing
from umbel.algorithms.base import Algorithm, State
from umbel.algorithms.ifca import IFCAState
from umbel.algorithms.restarts import RestartsState
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.experiment.toml_file import plain, structured
from umbel.flow import Replies

LOCAL = LocalTraining(epochs=1, batch_size=8)


def trained(update: list[float], chosen: list[int], losses: list[list[float]]) -> Replies:
    columns = {
        "update": torch.tensor(update)[:, None],
        "num_examples": torch.ones(2, dtype=torch.long),
        "chosen": torch.tensor(chosen),
        "losses": torch.tensor(losses).double(),
    }
    return Replies(torch.tensor([0, 1]), columns)


def after_a_trial(algorithm: Restarts, first: Replies, second: Replies) -> State:
    """The state after one round in which two rivals of two models got these replies."""
    flow = algorithm.round(algorithm.init(setup(2)), context([0, 1], 2))
    assert requested(flow).shared["models"].tolist() == [[0.0], [10.0]]
    asked = flow.send(first)
    assert asked.shared["models"].tolist() == [[20.0], [30.0]]
    return answered(flow, second.clients.tolist(), **second.columns)


def test_the_start_with_the_lowest_loss_goes_on_alone() -> None:
    after = after_a_trial(
        Restarts(IFCA(num_clusters=2), restarts=2, trial_rounds=1),
        trained([1, 1], [0, 0], [[0.9, 1.0], [0.8, 1.0]]),
        trained([2, 4], [1, 0], [[1.0, 0.3], [0.2, 1.0]]),
    )
    assert isinstance(after, IFCAState)
    assert after.models.tolist() == [[24.0], [32.0]]
    assert after.labels.tolist() == [1, 0]


def test_a_start_of_which_no_client_told_a_loss_does_not_go_on() -> None:
    told = trained([2, 4], [1, 0], [[1.0, 0.3], [0.2, 1.0]])
    nobody = told.pick(torch.zeros(0, dtype=torch.long))
    after = after_a_trial(Restarts(IFCA(num_clusters=2), restarts=2, trial_rounds=1), nobody, told)
    assert after.models.tolist() == [[24.0], [32.0]]


def test_a_start_that_the_hardest_client_cannot_train_does_not_gain_by_its_silence() -> None:
    refused = trained([1, 1], [0, 0], [[0.1, 1.0], [0.8, 1.0]]).pick(torch.tensor([0]))
    told = trained([2, 4], [1, 0], [[1.0, 0.3], [5.9, 6.0]])
    after = after_a_trial(Restarts(IFCA(num_clusters=2), restarts=2, trial_rounds=1), refused, told)
    assert after.models.tolist() == [[24.0], [32.0]]


def test_a_client_that_is_silent_with_every_start_decides_nothing() -> None:
    replies = [
        trained([1, 1], [0, 0], [[loss, 1.0], [0.8, 1.0]]).pick(torch.tensor([0]))
        for loss in (0.4, 0.3)
    ]
    after = after_a_trial(Restarts(IFCA(num_clusters=2), restarts=2, trial_rounds=1), *replies)
    assert after.models.tolist() == [[21.0], [30.0]]


def test_or_the_most_balanced_one() -> None:
    after = after_a_trial(
        Restarts(IFCA(num_clusters=2), restarts=2, trial_rounds=1, keep="most-balanced"),
        trained([1, 1], [0, 0], [[0.1, 1], [0.1, 1]]),
        trained([2, 4], [1, 0], [[1.0, 0.9], [0.9, 1.0]]),
    )
    assert after.models.tolist() == [[24.0], [32.0]]


def rivals_of(method: Algorithm[Any], *labels: list[int]) -> tuple[State, ...]:
    """Starts of a method for four clients, which have come to these clusters."""
    state = method.init(setup(4))
    return tuple(replace(state, labels=torch.tensor(each)) for each in labels)


def test_balance_is_of_the_clusters_that_there_are_whatever_they_are_called() -> None:
    several = Restarts(FLACC(), restarts=3, keep="most-balanced")
    lopsided, even, single = rivals_of(FLACC(), [0, 0, 0, 3], [0, 0, 2, 2], [0, 1, 2, 3])
    assert several._leader([lopsided, even, single]) == 1
    assert several._leader([single, lopsided]) == 0  # a tie: one client is the smallest of both
    start = Sharing(FLACC()).init(setup(4))
    kept = [replace(start, labels=one.labels, inner=(one,)) for one in (lopsided, even)]
    assert Restarts(Sharing(FLACC()), keep="most-balanced")._leader(kept) == 1


def test_a_model_that_nobody_uses_is_a_cluster_of_nobody() -> None:
    several = Restarts(CFLGP(3), restarts=2, keep="most-balanced")
    assert several._leader(rivals_of(CFLGP(3), [0, 0, 2, 2], [0, 1, 2, 2])) == 1


@pytest.mark.parametrize("method", [CFLGP(2), Sharing(FLACC(), kept=("*",))], ids=type)
def test_tables_of_clients_of_all_starts_have_to_fit_in_memory(
    method: Algorithm[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, several = setup(1000, 10), Restarts(method, restarts=10, keep="most-balanced")
    monkeypatch.setattr("umbel.checks.SMALL", 1000)
    monkeypatch.setattr("umbel.checks.free_memory", lambda: 100_000)
    method.init(alone)
    with pytest.raises(UsageError, match=r"states of 10 restarts: .* GiB is more than"):
        several.init(alone)


def test_until_then_all_train_and_the_leader_is_served() -> None:
    algorithm = Restarts(IFCA(num_clusters=2), restarts=2, trial_rounds=5)
    after = after_a_trial(
        algorithm,
        trained([1, 1], [0, 0], [[0.1, 1.0], [0.1, 1.0]]),
        trained([2, 4], [1, 0], [[1.0, 0.3], [0.2, 1.0]]),
    )
    assert isinstance(after, RestartsState)
    assert after.models.tolist() == [[1.0], [10.0], [24.0], [32.0]]
    assert after.labels.tolist() == [0, 0]
    request = requested(algorithm.serve(after, context([0, 1], 2)))
    assert request.shared["models"].tolist() == [[1.0], [10.0]]


def test_starts_differ_in_what_a_method_draws_too() -> None:
    state = Restarts(Joint(4), restarts=2).init(setup(400, seed=7))
    one, other = state.rivals
    assert (one.labels != other.labels).float().mean() > 0.5
    assert state.models.flatten().tolist() == [10.0 * n for n in range(8)]


@pytest.mark.parametrize("method", [FedEM(2), FedAvg()])
def test_a_method_that_reports_no_loss_is_judged_by_balance_or_not_at_all(
    method: Algorithm[State],
) -> None:
    with pytest.raises(UsageError, match=r"keep: 'lowest-loss' is not \"most-balanced\""):
        Restarts(method)
    assert Restarts(method, keep="most-balanced").restarts == 10


def test_experiments_say_it_among_the_settings_of_the_method() -> None:
    several = Restarts(IFCA(3, LOCAL), restarts=4)
    table = plain(several)
    assert table["name"] == "ifca"
    assert table["restarts"] == 4
    assert structured({"a": table}["a"], Algorithm) == several
    assert structured({"name": "ifca", "restarts": 1, "trial_rounds": 3}, Algorithm) == IFCA()
    for key, value in {"restarts": 0, "trial_rounds": 0, "keep": "some"}.items():
        with pytest.raises(UsageError, match=f"{key}: {value!r} is not"):
            structured({"name": "ifca", "restarts": 2, key: value}, Algorithm)


@dataclass(frozen=True)
class Keeps(FedAvg):
    """A method with a setting of its own that `Restarts` has, too."""

    keep: float = 0.5
    num_clusters: int = 2


@dataclass(frozen=True)
class Shares(FedAvg):
    """A method with settings of its own that `Sharing` and `Restarts` have, too."""

    share: float = 0.5
    restarts: int = 5


def test_a_setting_of_the_same_name_as_one_of_a_wrapper_takes_no_other_ones_place() -> None:
    """Both would be one key of the method's table."""
    with pytest.raises(UsageError, match=r"^keep: a setting of Keeps; rename it: Restarts has a"):
        Restarts(Keeps(), keep="most-balanced")
    with pytest.raises(UsageError, match=r"^share: a setting of Shares; rename it: Sharing has a"):
        Sharing(Shares(), kept=("1.*",))
    with pytest.raises(UsageError, match=r"^restarts: a setting of Shares; rename it: Restarts"):
        Restarts(Shares(), keep="most-balanced")
    with pytest.raises(UsageError, match=r"^keep: a setting of Keeps"):
        Restarts(Sharing(Keeps(), kept=("1.*",)), keep="most-balanced")
