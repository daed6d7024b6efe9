"""The works of mixtures against numbers computed from the definitions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tests.federations import blobs, each_its_own, mlp
from umbel.client.net import Net
from umbel.client.objectives import REGRESSION
from umbel.client.work import (
    MEMORY,
    Evaluation,
    LocalTraining,
    MixtureEvaluation,
    MixtureTraining,
    MixtureWeights,
    Work,
)
from umbel.data.federation import Federation
from umbel.engines import Sequential
from umbel.flow import Request

NET = mlp(dtype=torch.float64)
MODELS = torch.stack([NET.new(seed) for seed in range(3)])
WEIGHTS = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)


def do(work: Work, models: Tensor = MODELS, weights: Tensor = WEIGHTS) -> dict[str, Tensor]:
    """What client 1 replies."""
    row = each_its_own(weights[None])
    request = Request(
        work, torch.tensor([1]), [3], {"models": models}, {MEMORY: row, "weights": row}
    )
    replies = Sequential(NET, blobs()).send(request)
    return {name: column[0] for name, column in replies.columns.items()}


def losses_of(split: str) -> Tensor:
    """(K, B)."""
    x, y = getattr(blobs(), split).of(1)
    return torch.stack(
        [cross_entropy(NET.module(m)(x.double()), y, reduction="none").detach() for m in MODELS]
    )


def posterior() -> Tensor:
    """q (K, B) of the training examples, by Bayes' rule."""
    joint = WEIGHTS[:, None] * torch.exp(-losses_of("train"))
    return joint / joint.sum(0)


def test_the_next_weights_are_the_mean_probability_of_each_model() -> None:
    weights = do(MixtureWeights())[MEMORY]
    torch.testing.assert_close(weights, posterior().mean(1))
    assert float(weights.sum()) == pytest.approx(1)


def test_each_model_descends_the_losses_weighted_by_its_share() -> None:
    x, y = blobs().train.of(1)
    reply = do(MixtureTraining(LocalTraining(lr=0.1, epochs=2, batch_size="all")))
    for k, q in enumerate(posterior()):
        module = NET.module(MODELS[k])
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            losses = cross_entropy(module(x.double()), y, reduction="none")
            torch.autograd.backward((q * losses).mean())
            optimizer.step()
        torch.testing.assert_close(MODELS[k] + reply["update"][k], NET.flatten(module))
    torch.testing.assert_close(reply[MEMORY], posterior().mean(1))
    assert int(reply["num_examples"]) == 17


def test_a_model_without_weight_does_not_move_and_gets_none() -> None:
    weights = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    reply = do(MixtureTraining(LocalTraining()), weights=weights)
    assert reply[MEMORY].tolist() == [0.0, 1.0, 0.0]
    assert not reply["update"][[0, 2]].any()
    request = Request(
        LocalTraining(), torch.tensor([1]), [3], each={"theta": each_its_own(MODELS[1:2])}
    )
    alone = Sequential(NET, blobs()).send(request).columns["update"][0]
    torch.testing.assert_close(reply["update"][1], alone)


def test_a_mixture_predicts_with_the_weighted_probabilities() -> None:
    x, y = blobs().test.of(1)
    reply = do(MixtureEvaluation())
    each = torch.stack([NET.module(m)(x.double()).softmax(1).detach() for m in MODELS])
    mixed = (WEIGHTS[:, None, None] * each).sum(0)
    expected = -mixed.gather(1, y[:, None]).log().sum()
    torch.testing.assert_close(reply["loss"], expected)
    assert float(reply["right"]) == float((mixed.argmax(1) == y).sum())
    assert int(reply["num_examples"]) == len(y)


def test_all_the_weight_on_one_model_is_that_model() -> None:
    reply = do(MixtureEvaluation(), weights=torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
    request = Request(
        Evaluation(), torch.tensor([1]), [3], each={"theta": each_its_own(MODELS[2:])}
    )
    alone = Sequential(NET, blobs()).send(request).columns
    torch.testing.assert_close(reply["loss"], alone["loss"][0])
    assert float(reply["right"]) == float(alone["right"][0])


def test_a_mixture_for_regression_predicts_the_weighted_mean() -> None:
    x = torch.tensor([[1.0], [2.0]])
    federation = Federation.from_arrays([(x, x)], [(x, 2 * x)])
    net = Net(lambda: nn.Linear(1, 1, bias=False), REGRESSION)
    request = Request(
        MixtureEvaluation(),
        torch.tensor([0]),
        [0],
        {"models": torch.tensor([[0.0], [4.0]])},
        {"weights": each_its_own(torch.tensor([[0.75, 0.25]]))},
    )
    reply = Sequential(net, federation).send(request).columns
    assert reply["loss"].tolist() == [5.0]  # the outputs are x: 1 + 4
    assert reply["right"].isnan().all()


def test_a_mixture_of_one_model_trains_as_local_training_does() -> None:
    local = LocalTraining(lr=0.1, epochs=2, batch_size=4, proximal=3.0)
    mixture = do(MixtureTraining(local), MODELS[:1], torch.ones(1, dtype=torch.float64))
    theta = {"theta": each_its_own(MODELS[:1])}
    alone = Sequential(NET, blobs()).send(Request(local, torch.tensor([1]), [3], each=theta))
    torch.testing.assert_close(mixture["update"], alone.columns["update"])
