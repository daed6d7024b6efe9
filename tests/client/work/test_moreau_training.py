"""The client's side of pFedMe, on y = theta x with one example: every number by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.federations import each_its_own
from umbel.client.net import Net
from umbel.client.objectives import REGRESSION
from umbel.client.work import MEMORY, LocalTraining, MoreauTraining
from umbel.data.federation import Federation
from umbel.engines import Sequential
from umbel.flow import Request


def do(work: MoreauTraining) -> dict[str, Tensor]:
    """The loss of theta is (theta - 4)^2, its gradient 2 (theta - 4); theta starts at 0."""
    x = torch.ones(1, 1)
    federation = Federation.from_arrays([(x, 4 * x)], test_fraction=0.0)
    net = Net(lambda: nn.Linear(1, 1, bias=False), REGRESSION)
    theta = {"theta": each_its_own(torch.zeros(1, 1))}
    replies = Sequential(net, federation).send(Request(work, torch.tensor([0]), [0], each=theta))
    return {name: column[0] for name, column in replies.columns.items()}


def test_one_local_round() -> None:
    reply = do(MoreauTraining(LocalTraining(lr=0.5, steps=1), 1.0, 2, personal_lr=0.25))
    # theta: 0 - 0.25 (-8 + 0) = 2, then 2 - 0.25 (-4 + 2) = 2.5; w: 0 - 0.5 (0 - 2.5)
    assert reply[MEMORY].tolist() == [2.5]
    assert reply["update"].tolist() == [1.25]
    assert int(reply["num_examples"]) == 1


def test_the_personal_model_goes_on_from_one_mini_batch_to_the_next() -> None:
    reply = do(MoreauTraining(LocalTraining(lr=0.5, steps=2), 1.0, 1, personal_lr=0.25))
    # theta: 2, w: 1; theta: 2 - 0.25 (-4 + 2 - 1) = 2.75, w: 1 - 0.5 (1 - 2.75)
    assert reply[MEMORY].tolist() == [2.75]
    assert reply["update"].tolist() == [1.875]


def test_it_ends_where_the_envelope_says() -> None:
    reply = do(MoreauTraining(LocalTraining(lr=0.1, steps=1), 2.0, 200, personal_lr=0.1))
    # argmin (theta - 4)^2 + (theta - 0)^2
    torch.testing.assert_close(reply[MEMORY], torch.tensor([2.0]))
