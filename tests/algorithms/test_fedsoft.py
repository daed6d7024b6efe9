"""FedSoft by hand: shares, the pull towards a mixture, draws for centres, and new centres."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.algorithms.test_clove import HALF_SQUARED
from tests.federations import answered, context, each_its_own, requested
from umbel.algorithms import FedSoft
from umbel.algorithms.base import Known
from umbel.algorithms.fedsoft import FedSoftState
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.client.work import AnchoredTraining, BestShares, LocalTraining, Work
from umbel.data.federation import Federation
from umbel.engines import Sequential
from umbel.flow import Replies, Request, Rows
from umbel.result.run import Run

TWO_STEPS = LocalTraining(lr=0.25, steps=2, batch_size="all")
NET = Net(lambda: torch.nn.Linear(1, 1, bias=False), HALF_SQUARED)


def reply(work: Work, targets: list[float], **each: Rows) -> dict[str, torch.Tensor]:
    """What a client with these targets replies; models 0 and 3."""
    y = torch.tensor(targets)[:, None]
    federation = Federation.from_arrays([(torch.ones_like(y), y)], test_fraction=0.0)
    shared = {"models": torch.tensor([[0.0], [3.0]])}
    request = Request(work, torch.tensor([0]), [0], shared, each)
    return {n: c[0] for n, c in Sequential(NET, federation).send(request).columns.items()}


def test_shares_count_the_examples_that_a_model_fits_best() -> None:
    found = reply(BestShares(), [0.0, 1.0, 3.0, 4.0, 1.5])  # 1.5 is in the middle: the first model
    assert found["shares"].tolist() == [0.6, 0.4]
    assert int(found["num_examples"]) == 5


def test_training_is_pulled_towards_the_anchor() -> None:
    # Slope (w - 0) + (w - 4): 1 -> 1 + 2 / 4 = 3 / 2 -> 3 / 2 + 1 / 4.
    theta, anchor = each_its_own(torch.tensor([[1.0]])), each_its_own(torch.tensor([[4.0]]))
    found = reply(AnchoredTraining(TWO_STEPS, 1.0), [0.0], theta=theta, anchor=anchor)
    assert found["update"].tolist() == [0.75]


def test_with_its_start_as_the_anchor_it_is_fedprox() -> None:
    theta = each_its_own(torch.tensor([[1.0]]))
    found = reply(AnchoredTraining(TWO_STEPS, 0.5), [0.0, 3.0], theta=theta, anchor=theta)
    expected = reply(replace(TWO_STEPS, proximal=0.5), [0.0, 3.0], theta=theta)
    torch.testing.assert_close(found["update"], expected["update"])


STATE = FedSoftState(
    torch.tensor([[0.0], [8.0]]),
    torch.tensor([0, 1, 0]),
    shares=torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.5, 0.5]]).double(),
    examples=torch.tensor([4, 4, 0]),
    personal=torch.tensor([[1.0], [2.0], [20.0]]),
    trained=torch.tensor([True, True, False]),
)


def test_clients_are_pulled_to_their_mixtures_and_centres_are_means_of_their_models() -> None:
    local = LocalTraining(lr=0.5, lr_decay=0.5)
    flow = FedSoft(2, 0.3, selected=9, local=local).round(STATE, context([0, 1], 3, number=1))
    request = requested(flow)  # round 1: both have sent their shares
    assert request.work == AnchoredTraining(LocalTraining(lr=0.25), 0.3)
    assert [request.sent_to(n)["theta"].tolist() for n in range(2)] == [[1.0], [2.0]]
    assert [request.sent_to(n)["anchor"].tolist() for n in range(2)] == [[4.0], [6.0]]
    after = answered(flow, [0, 1], update=[[2.0], [3.0]], num_examples=[1, 9])
    assert after.personal.tolist() == [[3.0], [5.0], [20.0]]
    assert after.models.tolist() == [[4.0], [4.0]]  # both are drawn for both: plain means
    assert after.labels.tolist() == [0, 1, 0]


def test_shares_are_estimated_in_turn_smoothed_and_decide_who_is_drawn() -> None:
    method = FedSoft(2, selected=1, estimate_every=3)
    flow = method.round(STATE, context([0, 1, 2], 3, number=3))
    request = requested(flow)
    assert request.work == BestShares()
    assert request.clients.tolist() == [0, 1, 2]
    columns = {
        "shares": torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double(),
        "num_examples": torch.tensor([4, 4]),
    }
    following = flow.send(Replies(torch.tensor([0, 2]), columns))
    assert following.clients.tolist() in ([0, 1], [0, 2], [1, 2])  # 1 has u = (1/4, 3/4)
    after = answered(flow, following.clients[:1].tolist(), update=[[1.0]], num_examples=[4])
    few = 1e-4 / 1.0001
    expected = torch.tensor([[1 - few, few], [0.25, 0.75], [few, 1 - few]]).double()
    torch.testing.assert_close(after.shares, expected)
    assert after.labels.tolist() == [0, 1, 1]
    assert after.trained.sum() >= 2


@pytest.mark.parametrize("seed", range(6))
def test_a_centre_draws_clients_that_resemble_it(seed: int) -> None:
    shares = torch.tensor([[1.0, 1e-15], [1e-15, 1.0], [1.0, 1e-15]]).double()
    state = replace(STATE, shares=shares, examples=torch.tensor([1, 5, 10**9]))
    ctx = replace(context([0, 1, 2], 3, number=1), seed=seed)
    flow = FedSoft(2, selected=1).round(state, ctx)
    assert requested(flow).clients.tolist() == [1, 2]  # 2 has almost all examples of centre 0
    after = answered(flow, [1, 2], update=[[3.0], [4.0]], num_examples=[5, 5])
    assert after.models.tolist() == [[24.0], [5.0]]


def test_clients_without_shares_send_them_in_any_round() -> None:
    flow = FedSoft(2).round(STATE, context([0, 2], 3, number=1))
    assert requested(flow).clients.tolist() == [2]
    assert requested(FedSoft(2).round(STATE, context([0], 3, number=2))).work == BestShares()


def test_clients_use_their_own_models_and_else_the_centre_of_their_largest_share() -> None:
    served = FedSoft(2).serve(STATE, context([1, 2], 3))
    with pytest.raises(StopIteration) as end:
        next(served)
    assert end.value.value.models.take(torch.arange(2)).tolist() == [[2.0], [0.0]]
    assert end.value.value.labels.tolist() == [1, 0]
    flow = FedSoft(2).assign(STATE, context([0], 1))
    requested(flow)
    found = answered(flow, [0], shares=torch.tensor([[0.25, 0.75]]), num_examples=[4])
    assert found.scores.tolist() == [[0.75, 0.25]]


def test_clients_of_two_sources_come_to_two_centres() -> None:
    targets = [[-2.0] * 4, [-2.0] * 3 + [2.0], [2.0] * 4, [2.0] * 3 + [-2.0]] * 3
    examples = [(torch.ones(4, 1), torch.tensor(y)[:, None]) for y in targets]
    federation = Federation.from_arrays(examples, examples)
    run = Run(FedSoft(2, local=TWO_STEPS), federation, NET)
    *_, (state, _) = run.rounds(20)
    assert isinstance(state, FedSoftState)
    low, high = int(state.models.argmin()), int(state.models.argmax())
    assert state.models[low] < -0.5 < 0.5 < state.models[high]
    assert state.labels.tolist() == [low, low, high, high] * 3


def test_settings_out_of_range_are_refused() -> None:
    for setting in ("num_clusters", "estimate_every", "selected"):
        with pytest.raises(UsageError, match=f"{setting}: 0 is not 1 or more"):
            replace(FedSoft(), **{setting: 0})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="pull: -1"):
        FedSoft(pull=-1.0)
    with pytest.raises(UsageError, match="9 is not at most"):
        FedSoft(9).check(Known(1.0, num_clients=3))
