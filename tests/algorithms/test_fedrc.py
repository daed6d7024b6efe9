"""FedRC by hand: the E-step with label shares, the server's sums, and what separates clients."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch

import umbel
from tests.federations import answered, blobs, context, each_its_own, mlp, requested, setup
from umbel.algorithms import FedEM, FedRC
from umbel.algorithms.fedrc import FedRCState
from umbel.client.net import Net
from umbel.client.objectives import Objective
from umbel.client.work import MEMORY, LocalTraining, MixtureTraining, MixtureWeights
from umbel.data.federation import Federation
from umbel.engines import Sequential
from umbel.flow import Request

# The loss of a model with one weight is this weight, on all examples.
CONSTANT = Objective(
    losses=lambda outputs, y: outputs.flatten() + 0 * y,
    correct=lambda outputs, y: (y == 0) + 0 * outputs.flatten(),
)
CONSTANT_NET = Net(lambda: torch.nn.Linear(1, 1, bias=False), CONSTANT)
TWO = Federation.from_arrays([(torch.ones(2, 1), torch.tensor([0, 1]))] * 2, num_classes=2)


def request(work: MixtureTraining | MixtureWeights) -> Request:
    """Two models with losses 0 and log 3, of labels in shares 3 : 1 and 1 : 3."""
    shared = {
        "models": torch.tensor([[0.0], [log(3)]]),
        "label_shares": torch.tensor([[0.75, 0.25], [0.25, 0.75]]),
    }
    each = {MEMORY: each_its_own(torch.tensor([[0.5, 0.5]]))}
    return Request(work, torch.tensor([0]), [0], shared, each)


def test_a_models_common_labels_speak_less_for_it() -> None:
    # Label 0: 1/(3/4) to (1/3)/(1/4), so 1/2 and 1/2; label 1: 4 to 4/9, so 9/10 and 1/10.
    engine = Sequential(CONSTANT_NET, TWO)
    weights = engine.send(request(MixtureWeights())).columns[MEMORY][0]
    torch.testing.assert_close(weights, torch.tensor([0.7, 0.3]))
    reply = engine.send(request(MixtureTraining(LocalTraining(steps=1)))).columns
    torch.testing.assert_close(reply[MEMORY][0], weights)
    by_label = torch.tensor([[0.25, 0.45], [0.25, 0.05]])
    torch.testing.assert_close(reply["label_shares"][0], by_label)


STATE = FedRCState(
    torch.tensor([[0.0], [10.0]]),
    torch.tensor([0, 0, 0]),
    torch.full((3, 2), 0.5),
    torch.tensor([[[3.0, 0.0], [1.0, 0.0]], [[0.0, 0.0]] * 2, [[0.0, 1.0], [0.0, 3.0]]]).double(),
)


def test_label_shares_are_of_the_last_answers_of_all_clients() -> None:
    flow = FedRC(2).round(STATE, context([0], 3))
    asked = requested(flow)
    expected = torch.tensor([[0.75, 0.25], [0.25, 0.75]])
    torch.testing.assert_close(asked.shared["label_shares"], expected)
    after = answered(
        flow,
        [0],
        update=[[[4.0], [2.0]]],
        num_examples=[4],
        memory=[[0.75, 0.25]],
        label_shares=[[[0.25, 0.5], [0.25, 0.0]]],
    )
    assert after.models.tolist() == [[4.0], [12.0]]
    assert after.weights.tolist() == [[0.75, 0.25], [0.5, 0.5], [0.5, 0.5]]
    assert after.by_label.tolist()[0] == [[1.0, 2.0], [1.0, 0.0]]
    assert after.by_label.tolist()[1:] == STATE.by_label.tolist()[1:]
    # Sums (1, 3) and (1, 3): both models now have a quarter of label 0.
    shares = FedRC(2).label_shares(after, context([0], 3))
    torch.testing.assert_close(shares, torch.tensor([[0.25, 0.75], [0.25, 0.75]]))


def test_the_first_shares_are_equal_and_those_of_labels_that_nobody_has_are_tiny() -> None:
    first = FedRC(2).init(setup(3))
    ctx = replace(context([0], 3), num_outputs=4)
    assert FedRC(2).label_shares(first, ctx).tolist() == [[0.25] * 4] * 2
    lacking = replace(STATE, by_label=STATE.by_label[:1])
    torch.testing.assert_close(
        FedRC(2).label_shares(lacking, ctx),
        torch.tensor([[1.0, 1e-8 / 3], [1.0, 1e-8]]),
        rtol=1e-5,
        atol=0,
    )


def fitted(method: FedEM | FedRC, federation: Federation) -> umbel.Record:
    local = LocalTraining(lr=0.3, epochs=5, batch_size=8)
    run = umbel.Run(replace(method, local=local), federation, mlp(dtype=torch.float64))
    *_, (_, record) = run.rounds(20)
    return record


def skewed() -> Federation:
    """Two groups of clients that have the same classes, one of them 9 examples in 10 of label 0."""
    rng, centres = np.random.default_rng(0), np.eye(3, 6, dtype=np.float32) * 2
    examples = []
    for client in range(12):
        mostly = 0.9 if client % 2 else 0.05
        y = rng.choice(3, 60, p=[mostly, 0.95 - mostly, 0.05])
        examples.append((centres[y] + rng.normal(size=(60, 6)).astype(np.float32), y))
    groups = [client % 2 for client in range(12)]
    return Federation.from_arrays(examples, test_fraction=0.2, groups=groups, num_classes=3)


def test_other_labels_for_the_same_inputs_separate_clients() -> None:
    assert fitted(FedRC(2), blobs([40] * 12)).ari == 1.0


def test_skewed_labels_separate_the_clients_of_fedem_alone() -> None:
    assert fitted(FedEM(2), skewed()).ari == 1.0
    assert abs(fitted(FedRC(2), skewed()).ari or 0.0) < 0.2


@pytest.mark.parametrize("many", [False, True], ids=["targets", "many labels"])
def test_examples_without_one_label_each_are_refused(many: bool) -> None:
    x = np.ones((6, 1), np.float32)
    y = np.tile([0, 1], (6, 1)) if many else x
    layers = torch.nn.Linear(1, 4), torch.nn.Unflatten(1, (2, 2))
    net = Net(
        lambda: torch.nn.Sequential(*layers) if many else torch.nn.Linear(1, 1), objective(many)
    )
    run = umbel.Run(FedRC(2), Federation.from_arrays([(x, y)] * 3, test_fraction=0.0), net)
    with pytest.raises(umbel.UsageError, match=r"y: .* is not a label for each example"):
        next(run.rounds(1))


def objective(classes: bool) -> Objective:
    return umbel.CLASSIFICATION if classes else umbel.REGRESSION
