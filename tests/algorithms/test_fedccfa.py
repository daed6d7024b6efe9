"""FedCCFA's class clusters and rows of heads by hand, and the two phases of its training."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import umbel
from umbel.algorithms.base import Setup
from umbel.algorithms.fedccfa import FedCCFA, FedCCFAState, madd
from umbel.client.work.aligned_training import AlignedTraining, surprise
from umbel.flow import Replies, Request, Rows, drive
from umbel.server.ask import Context
from umbel.testing import blobs, mlp

NET = umbel.Net(lambda: nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 2)))
"""theta has two values of the body, two rows of the head, and two biases."""


def context(cohort: list[int], number: int = 0) -> Context:
    return Context(
        round=number,
        num_rounds=9,
        cohort=torch.tensor(cohort),
        num_clients=5,
        seed=0,
        layout=NET.layout,
        num_outputs=2,
    )


def start(method: FedCCFA) -> FedCCFAState:
    return method.init(
        Setup(
            num_clients=5,
            num_rounds=9,
            participation=1.0,
            layout=NET.layout,
            new_model=lambda number: torch.ones(8) + 0 * number,
        )
    )


class Answering:
    """Clients whose updates, balanced rows, means and numbers of examples are given."""

    def __init__(self, **columns: object) -> None:
        self.columns = {name: torch.tensor(value) for name, value in columns.items()}

    def send(self, request: Request) -> Replies:
        columns = {**self.columns, "num_examples": self.columns["examples"].sum(1)}
        return Replies(request.clients, columns)


def test_distances_are_mean_differences_of_cosines_with_the_others() -> None:
    # Cosines: 0 of the first two, r of each with the third, and -1 and -r with the fourth.
    r = sqrt(0.5)
    rows = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0], [-1.0, 0.0]])
    found = madd(rows)
    assert found[0, 1].item() == pytest.approx((0 + 1) / 2)  # |r - r|, |-1 - 0|
    assert found[0, 2].item() == pytest.approx((r + (1 - r)) / 2)  # |0 - r|, |-1 - -r|
    assert found[0, 3].item() == pytest.approx((0 + 2 * r) / 2)  # |0 - 0|, |r - -r|
    assert torch.equal(found, found.T)
    assert found.diagonal().tolist() == [0, 0, 0, 0]
    two = madd(rows[[0, 2]])
    assert two[0, 1].item() == pytest.approx(1 - r)
    assert madd(rows[:1]).tolist() == [[0]]
    assert madd(torch.zeros(3, 2)).isfinite().all()


def test_rows_and_prototypes_are_averaged_in_class_clusters() -> None:
    method = FedCCFA(averaging=umbel.Averaging("equal"))
    same, other = [1.0, 0.0], [0.0, 1.0]
    # Clients 0 and 1 agree on class 0, and so do 2 and 3; all agree on class 1, which 3 lacks.
    answers = Answering(
        update=[[0.0, 0, i, i, i, i, i, i] for i in range(4)],
        balanced=[[same, same], [same, same], [other, same], [other, same]],
        means=[[[i, 0.0], [4.0 * i, 0]] for i in range(4)],
        examples=[[1, 2], [30, 4], [5, 6], [7, 0]],
    )
    state = drive(method.round(start(method), context([0, 1, 2, 3])), answers)
    assert state.clusters.tolist() == [[0, 0], [0, 0], [1, 0], [1, -1], [-1, -1]]
    # Rows and biases were 1, and client i's rose by i.
    assert state.heads[..., 0].tolist() == [[1.5, 2], [1.5, 2], [3.5, 2], [3.5, 4], [0, 0]]
    assert torch.equal(state.heads, state.heads[..., :1].expand(-1, -1, 3))
    assert state.prototypes[:, 0, 0].tolist() == [0.5, 0.5, 2.5, 2.5, 0]
    assert state.prototypes[:, 1, 0].tolist() == [4, 4, 4, 0, 0]
    assert state.models.tolist() == [[1, 1, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5]]
    assert method.measure(state) == {"class_clusters": 1.5}
    # Client 4 was not asked: it has the mean of the heads.
    served = drive(method.serve(state, context([3, 4])), answers)
    found = served.models.take(torch.arange(2))
    assert found.tolist() == [[1, 1, 3.5, 3.5, 4, 4, 3.5, 4], state.models[0].tolist()]
    for number, aligned in ((19, False), (20, True)):
        request = next(method.round(state, context([3, 4], number)))
        assert bool(request.each["prototypes"].row(0).any()) == aligned

    # Two alone are compared by their cosine; what a client lacks stays as it was.
    answers = Answering(
        update=[[0.0] * 8, [0.0] * 8],
        balanced=[[same, same], [other, same]],
        means=[[[8.0, 8], [6.0, 6]], [[9.0, 9], [0.0, 0]]],
        examples=[[1, 1], [1, 0]],
    )
    after = drive(method.round(state, context([0, 2])), answers)
    assert after.clusters.tolist() == [[0, 0], [-1, -1], [1, -1], [-1, -1], [-1, -1]]
    assert after.prototypes[2].tolist() == [[9, 9], [4, 0]]
    assert torch.equal(after.heads, state.heads)


def test_an_example_is_surprised_by_prototypes_of_other_classes() -> None:
    z, y = (
        torch.tensor([[3.0, 0.0], [0.0, 0.2], [0.0, 0.0], [1.0, 0.0]]),
        torch.tensor([0, 0, 1, 2]),
    )
    prototypes = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    # By cosines of 1 and 0, and of 0 and 1; features of 0 have none, and class 2 is unknown.
    far = log(1 + np.exp(10))
    expected = torch.tensor([far - 10, far, log(2), 0])
    torch.testing.assert_close(surprise(z, y, prototypes), expected, rtol=1e-4, atol=1e-6)
    assert surprise(z, y, torch.zeros(3, 2)).tolist() == [0, 0, 0, 0]


def test_the_head_is_trained_before_the_body_and_its_copy_on_few_examples_of_a_class() -> None:
    net = umbel.Net(lambda: nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2)).double())
    x = torch.tensor([[1.0, 0.0]] * 9 + [[0.0, 1.0]] * 2).double()
    y = torch.tensor([0] * 9 + [1] * 2)
    federation = umbel.Federation.from_arrays([(x, y)] * 2, [(x, y)] * 2, num_classes=2)
    theta = torch.tensor([1.0, 0, 0, 1, 0, 0, 0, 0, 0, 0]).double()
    prototypes = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()
    local = umbel.LocalTraining(lr=0.1, epochs=2, batch_size="all")
    ctx = replace(context([0, 1]), layout=net.layout, num_clients=2)
    both = torch.tensor([0, 0])
    request = ctx.request(
        AlignedTraining(local, 2.0, 0.5),
        theta=Rows(theta[None], both),
        prototypes=Rows(prototypes[None], both),
    )
    # The copy: five steps on five examples of class 0, and two of class 1.
    few = [0, 1, 2, 3, 4, 9, 10]
    copy, head, body = (part.clone().requires_grad_() for part in (theta[4:], theta[4:], theta[:4]))

    def outputs(features: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return features @ values[:4].view(2, 2).T + values[4:]

    def down(values: torch.Tensor, loss: torch.Tensor, lr: float) -> None:
        values.data -= lr * torch.autograd.grad(loss, values)[0]

    for _ in range(5):
        down(copy, cross_entropy(outputs(x[few], copy), y[few]), 0.2)
    down(head, cross_entropy(outputs(x, head), y), 0.2)
    weight = -0.5 * (9 / 11 * log(9 / 11) + 2 / 11 * log(2 / 11))
    for _ in range(2):
        z = x @ body.view(2, 2).T
        term = weight * surprise(z, y, prototypes).mean()
        down(body, cross_entropy(outputs(z, head.detach()), y) + term, 0.1)
    for engine in (umbel.Sequential(net, federation), umbel.Vectorised(net, federation)):
        columns = engine.send(request).columns
        update = torch.cat([body, head]).detach() - theta
        torch.testing.assert_close(columns["update"], update.expand(2, -1), rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(columns["balanced"][1], copy.detach()[:4].view(2, 2))
        torch.testing.assert_close(columns["means"][0], body.detach().view(2, 2).T)
        assert columns["examples"].tolist() == [[9, 2]] * 2


def test_clients_that_swap_labels_are_apart_in_those_classes_alone() -> None:
    rng, swapped = np.random.default_rng(0), np.array([1, 0, 2, 3])
    centres, shards = 2 * rng.normal(size=(4, 6)), []
    for client in range(12):  # the odd ones swap classes 0 and 1
        y = np.arange(60) % 4
        x = (centres[y] + rng.normal(size=(60, 6))).astype(np.float32)
        shards.append((x, swapped[y] if client % 2 else y))
    federation = umbel.Federation.from_arrays(shards, num_classes=4, test_fraction=0.2)
    method = FedCCFA(align_from=3, local=umbel.LocalTraining(0.02, 3, 16))
    *_, (state, record) = umbel.Run(method, federation, mlp(6, 4), seed=1).rounds(8)
    assert isinstance(state, FedCCFAState)
    for number, groups in enumerate([[0, 1], [0, 1], [0, 0], [0, 0]]):
        assert state.clusters[:, number].tolist() == groups * 6
    assert record.accuracy is not None
    assert record.accuracy > 0.8  # one model for all can't exceed 0.75


def test_a_newcomer_begins_with_the_mean_of_the_heads() -> None:
    membership = umbel.Membership((umbel.Event(2, joins=("7",)),))
    run = umbel.Run(FedCCFA(), blobs(), mlp(), membership=membership)
    (*_, (state, _)) = run.rounds(2)
    after = run.algorithm.members(state, torch.arange(7), replace(run.setup(3), num_clients=8))
    ctx = replace(run.context(0, 3), cohort=torch.tensor([0, 7]), num_clients=8)
    models = drive(run.algorithm.serve(after, ctx), run.clients).models.take(torch.arange(2))
    assert torch.equal(models[1], state.models[0])
    assert not torch.equal(models[0], state.models[0])


def test_other_tasks_and_networks_are_refused() -> None:
    net = umbel.Net(lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), umbel.REGRESSION)
    targets = umbel.Federation.from_arrays([(torch.ones(9, 2), torch.ones(9, 1))], test_fraction=0)
    with pytest.raises(umbel.UsageError, match="classification with one label an example"):
        next(umbel.Run(FedCCFA(), targets, net).rounds(1))
    with pytest.raises(umbel.UsageError, match="layers before the last one"):
        next(umbel.Run(FedCCFA(), blobs(), umbel.Net(lambda: nn.Linear(6, 3))).rounds(1))
    features = umbel.Net(
        lambda: nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 5), nn.Linear(5, 3)),
        trained=["0.*", "1.*"],
    )
    with pytest.raises(umbel.UsageError, match="model: its last layer: 5 is not 3"):
        next(umbel.Run(FedCCFA(), blobs(), features).rounds(1))
    with pytest.raises(umbel.UsageError, match="eps"):
        FedCCFA(eps=0)
