"""FedProto's prototypes, and the term that holds features near them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import umbel
from umbel.algorithms.base import Setup
from umbel.algorithms.fedproto import FedProto, FedProtoState
from umbel.client.work import MEMORY, PrototypeTraining
from umbel.flow import Replies, Request, Rows, drive
from umbel.server.ask import Context
from umbel.testing import blobs, mlp

NET = umbel.Net(lambda: nn.Linear(2, 2, bias=False))
THETA = torch.tensor([1.0, 0.0, 0.0, 1.0])


def context(cohort: list[int]) -> Context:
    clients = torch.tensor(cohort)
    return Context(round=0, num_rounds=9, cohort=clients, num_clients=3, seed=0, layout=NET.layout)


def start(method: FedProto) -> FedProtoState:
    return method.init(
        Setup(
            num_clients=3,
            num_rounds=9,
            participation=1.0,
            layout=NET.layout,
            new_model=lambda number: THETA + 0 * number,
        )
    )


class Answering:
    """Clients whose means of two classes, and numbers of examples, are given."""

    def __init__(self, means: list[list[list[float]]], counts: list[list[int]]) -> None:
        self.means, self.counts = torch.tensor(means), torch.tensor(counts)

    def send(self, request: Request) -> Replies:
        models = torch.ones(len(request.clients), 4) * request.clients[:, None]
        columns = {MEMORY: models, "means": self.means, "examples": self.counts}
        return Replies(request.clients, {**columns, "num_examples": self.counts.sum(1)})


def test_prototypes_are_means_by_examples_and_stay_where_nobody_has_the_class() -> None:
    method = FedProto()
    # Client 0 has features (1, 0) and (3, 0) of class 0, and client 1 has (0, 4).
    answers = Answering([[[2, 0], [0, 0]], [[0, 4], [0, 0]]], [[2, 0], [1, 0]])
    state = drive(method.round(start(method), context([0, 1])), answers)
    torch.testing.assert_close(state.prototypes[0], torch.tensor([4 / 3, 4 / 3]))
    assert state.known.tolist() == [True, False]
    assert state.kept[:, 0].tolist() == [0, 1, 1]  # client 2 has the first model
    later = Answering([[[9, 9], [5, 6]]], [[0, 3]])
    state = drive(method.round(state, context([2])), later)
    torch.testing.assert_close(state.prototypes, torch.tensor([[4 / 3, 4 / 3], [5, 6]]))


def test_a_claim_of_many_examples_has_no_more_than_the_allowed_share() -> None:
    method = FedProto()
    answers = Answering([[[1, 0], [0, 0]], [[0, 1], [0, 0]]], [[10**9, 0], [4, 0]])
    bounded = torch.tensor([0.5, 0.5])
    ctx = context([0, 1])
    ctx = Context(**{**vars(ctx), "max_share": 0.5})
    state = drive(method.round(start(method), ctx), answers)
    torch.testing.assert_close(state.prototypes[0], bounded)


def test_features_are_pulled_to_the_prototype_of_their_class() -> None:
    net = umbel.Net(lambda: nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 2, bias=False)))
    federation = umbel.Federation.from_arrays(
        [(torch.ones(1, 1), torch.tensor([0]))],
        [(torch.ones(1, 1), torch.tensor([0]))],
        num_classes=2,
    )
    # The head is 0, so that only the term moves the body (1, 0): mean of ((1-1)^2, (0-2)^2) is 2.
    theta = torch.tensor([1.0, 0, 0, 0, 0, 0])
    local = umbel.LocalTraining(lr=0.25, steps=1, batch_size="all")
    ctx = Context(
        round=0, num_rounds=1, cohort=torch.tensor([0]), num_clients=1, seed=0, layout=net.layout
    )
    sent = {"prototypes": torch.tensor([[1.0, 2], [0, 0]]), "known": torch.tensor([True, False])}
    request = ctx.request(
        PrototypeTraining(local, 1.0), sent, memory=Rows(theta[None], torch.tensor([0]))
    )
    for engine in (umbel.Sequential(net, federation), umbel.Vectorised(net, federation)):
        columns = engine.send(request).columns
        # The slope of the term by the features is 2 (z - c) / 2 = (0, -2).
        torch.testing.assert_close(columns[MEMORY][0, :2], torch.tensor([1.0, 0.5]))
        torch.testing.assert_close(columns["means"][0], torch.tensor([[1.0, 0.5], [0, 0]]))
        assert columns["examples"].tolist() == [[1, 0]]


def test_only_prototypes_are_traffic_and_other_tasks_are_refused() -> None:
    net = mlp()
    *_, (state, record) = umbel.Run(FedProto(), blobs(), net, seed=1).rounds(2)
    assert isinstance(state, FedProtoState)
    classes, size = state.prototypes.shape
    assert record.bytes_down == 8 * (4 * classes * size + classes)
    regression = umbel.Net(lambda: nn.Linear(6, 1), umbel.REGRESSION)
    with pytest.raises(umbel.UsageError):
        next(umbel.Run(FedProto(), blobs(), regression).rounds(1))
    with pytest.raises(umbel.UsageError, match=r"weight: -1.0 is not 0 or more"):
        FedProto(-1.0)
