"""Several starts side by side: hand-worked rounds, and what earlier versions wrote of them."""

from __future__ import annotations

import pytest
import torch

from tests.federations import answered, context, requested, setup
from umbel.algorithms import IFCA, FedAvg, FedEM, Joint, Restarts
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


def test_or_the_most_balanced_one() -> None:
    after = after_a_trial(
        Restarts(IFCA(num_clusters=2), restarts=2, trial_rounds=1, keep="most-balanced"),
        trained([1, 1], [0, 0], [[0.1, 1], [0.1, 1]]),
        trained([2, 4], [1, 0], [[1.0, 0.9], [0.9, 1.0]]),
    )
    assert after.models.tolist() == [[24.0], [32.0]]


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
