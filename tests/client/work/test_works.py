"""Each work against numbers computed with the module itself."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.federations import blobs, each_its_own, mlp
from umbel.client.net import Net
from umbel.client.objectives import REGRESSION
from umbel.client.work import (
    ChooseByLoss,
    ChooseJointly,
    Evaluation,
    Feature,
    Gradient,
    JointScore,
    LocalTraining,
    MeanLoss,
    PrincipalVectors,
    Quantised,
    TrainAndGradient,
    Work,
)
from umbel.client.work.choose_jointly import Reduction, Sign, Similarity
from umbel.client.work.quantised import _cut
from umbel.data.federation import Federation
from umbel.engines import Sequential
from umbel.flow import Replies, Request

NET = mlp(dtype=torch.float64)
MODELS = torch.stack([NET.new(seed) for seed in range(4)])


def do(
    work: Work,
    client: int = 1,
    seed: int = 3,
    theta: torch.Tensor = MODELS[0],
    shared: Mapping[str, torch.Tensor] | None = None,
) -> Replies:
    request = Request(
        work,
        torch.tensor([client]),
        [seed],
        {"models": MODELS, **(shared or {})},
        {"theta": each_its_own(theta[None])},
    )
    return Sequential(NET, blobs()).send(request)


def loss_of(model: int, rows: list[int] | None = None) -> torch.Tensor:
    x, y = blobs().train.of(1)
    rows = list(range(len(x))) if rows is None else rows
    return cross_entropy(NET.module(MODELS[model])(x[rows].double()), y[rows])


def gradient_of(model: int, rows: list[int] | None = None) -> torch.Tensor:
    x, y = blobs().train.of(1)
    rows = list(range(len(x))) if rows is None else rows
    module = NET.module(MODELS[model])
    torch.autograd.backward(cross_entropy(module(x[rows].double()), y[rows]))
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


def test_mean_loss_is_of_all_training_examples_for_every_model() -> None:
    losses = do(MeanLoss()).columns["losses"][0]
    expected = torch.stack([loss_of(k) for k in range(4)])
    torch.testing.assert_close(losses, expected, check_dtype=False)


def test_mean_loss_on_some_examples_uses_the_same_ones_for_every_model() -> None:
    work = MeanLoss(max_examples=5)
    rows = work.batching.plan(17, 3)[0].tolist()
    expected = torch.stack([loss_of(k, rows) for k in range(4)])
    assert len(set(rows)) == 5
    torch.testing.assert_close(do(work).columns["losses"][0], expected, check_dtype=False)


def test_the_gradient_is_of_all_examples_or_of_one_mini_batch() -> None:
    torch.testing.assert_close(do(Gradient()).columns["gradient"][0], gradient_of(0))
    some = Gradient(batch_size=4)
    rows = some.batching.plan(17, 3)[0].tolist()
    torch.testing.assert_close(do(some).columns["gradient"][0], gradient_of(0, rows))


def test_choosing_by_loss_trains_the_best_model() -> None:
    local = LocalTraining(epochs=2)
    reply = do(ChooseByLoss(local)).columns
    losses = torch.stack([loss_of(k) for k in range(4)])
    best = int(losses.argmin())
    assert reply["chosen"].tolist() == [best]
    torch.testing.assert_close(reply["losses"][0], losses, check_dtype=False)
    request = Request(
        local, torch.tensor([1]), [3], each={"theta": each_its_own(MODELS[best][None])}
    )
    alone = Sequential(NET, blobs()).send(request).columns["update"]
    torch.testing.assert_close(reply["update"], alone)


def test_choosing_by_a_mini_batch_judges_by_the_one_that_is_trained_on_first() -> None:
    local = LocalTraining(batch_size=4)
    rows = local.batching.plan(17, 3)[0].tolist()
    reply = do(ChooseByLoss(local, "mini-batch")).columns
    losses = torch.stack([loss_of(k, rows) for k in range(4)])
    torch.testing.assert_close(reply["losses"][0], losses, check_dtype=False)
    assert reply["chosen"].tolist() == [int(losses.argmin())]


def test_training_with_gradient_gives_both() -> None:
    reply = do(TrainAndGradient(LocalTraining())).columns
    torch.testing.assert_close(reply["gradient"][0], gradient_of(0))
    torch.testing.assert_close(reply["update"], do(LocalTraining()).columns["update"])
    assert reply["num_examples"].tolist() == [17]


@pytest.mark.parametrize("size", [3, 8])
def test_training_with_the_gradient_of_a_mini_batch_gives_both_as_each_alone(size: int) -> None:
    local = LocalTraining(batch_size=5, epochs=2)
    reply = do(TrainAndGradient(local, Gradient(size))).columns
    torch.testing.assert_close(reply["gradient"], do(Gradient(size)).columns["gradient"])
    torch.testing.assert_close(reply["update"], do(local).columns["update"])
    assert TrainAndGradient(local, Gradient(size)).batching.fewest is not None


def test_principal_vectors_are_the_left_singular_vectors_of_the_data() -> None:
    x, _ = blobs().train.of(1)
    vectors = do(PrincipalVectors(3, 6)).columns["vectors"][0]
    left, _, _ = torch.linalg.svd(x.double().T, full_matrices=False)
    torch.testing.assert_close(vectors.abs(), left[:, :3].abs())
    assert (vectors.gather(0, vectors.abs().argmax(0, keepdim=True)) > 0).all()


def test_principal_vectors_of_each_class_stand_side_by_side() -> None:
    x, y = blobs().train.of(1)
    work = PrincipalVectors(2, 6, num_classes=4)
    vectors = do(work).columns["vectors"][0]
    assert vectors.shape == work.promises({})["vectors"].shape == (6, 8)
    for k in range(3):
        left, _, _ = torch.linalg.svd(x[y == k].double().T, full_matrices=False)
        torch.testing.assert_close(vectors[:, 2 * k : 2 * k + 2].abs(), left[:, :2].abs())
    assert not vectors[:, 6:].any()  # nobody is of the last class


def test_directions_that_the_data_do_not_have_are_zero() -> None:
    x, _ = blobs().train.of(0)
    one = Federation.from_arrays([(x[:1].repeat(5, 1), [0, 1, 0, 1, 0])], test_fraction=0.0)
    request = Request(PrincipalVectors(3, 6), torch.tensor([0]), [0])
    vectors = Sequential(NET, one).send(request).columns["vectors"][0]
    torch.testing.assert_close(vectors[:, 0].abs(), (x[0] / x[0].norm()).abs().double())
    assert not vectors[:, 1:].any()


def test_evaluation_counts_right_answers_on_test_examples() -> None:
    x, y = blobs().test.of(1)
    outputs = NET.module(MODELS[0])(x.double())
    reply = do(Evaluation()).columns
    assert reply["right"].tolist() == [float((outputs.argmax(1) == y).sum())]
    assert reply["num_examples"].tolist() == [8]
    summed = cross_entropy(outputs, y, reduction="sum").detach()[None]
    torch.testing.assert_close(reply["loss"], summed)


def test_regression_is_evaluated_without_accuracy() -> None:
    x = torch.linspace(0, 1, 12)[:, None]
    federation = Federation.from_arrays([(x, 2 * x), (x, -x)], test_fraction=0.5)
    net = Net(lambda: nn.Linear(1, 1), REGRESSION)
    theta = torch.tensor([[2.0, 0.0]])
    request = Request(Evaluation(), torch.tensor([0]), [0], each={"theta": each_its_own(theta)})
    reply = Sequential(net, federation).send(request).columns
    assert reply["loss"].tolist() == [0.0]
    assert reply["right"].isnan().all()


def test_quantised_replies_are_cut_off_after_some_decimals() -> None:
    whole = do(Gradient()).columns["gradient"]
    found = do(Quantised(Gradient(), 2)).columns
    assert found["num_examples"] == do(Gradient()).columns["num_examples"]
    cut = found["gradient"]
    torch.testing.assert_close(cut * 100, (cut * 100).round(), atol=1e-9, rtol=0)
    assert (cut.abs() <= whole.abs()).all()
    assert ((whole - cut).abs() < 0.01).all()
    assert do(Quantised(Gradient(), 0)).columns["gradient"].abs().sum() == 0


def test_a_feature_is_some_coordinates_of_a_gradient_or_an_update() -> None:
    coordinates = torch.tensor([5, 0, 9])
    for of, column in ((Gradient(), "gradient"), (LocalTraining(), "update")):
        whole = do(of).columns[column]
        found = do(Feature(of), shared={"coordinates": coordinates}).columns
        assert list(found) == ["feature"]
        torch.testing.assert_close(found["feature"], whole[:, coordinates])
        assert torch.equal(do(Feature(of)).columns["feature"], whole)


@pytest.mark.parametrize("sign", ["descent", "literal"])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_joint_scores_are_those_of_equation_4(
    sign: Sign, similarity: Similarity, reduction: Reduction
) -> None:
    local = LocalTraining(lr=0.5, batch_size="all")
    moves = MODELS.roll(1, 0) * 0.1
    moves[2] = 0
    work = JointScore(local, 0.3, similarity, sign, reduction)
    found = do(work, shared={"moves": moves}).columns["scores"][0]
    x, y = blobs().train.of(1)
    size = len(y) if reduction == "sum" else 1
    for k, (model, move) in enumerate(zip(MODELS, moves, strict=True)):
        module = NET.module(model)
        loss = cross_entropy(module(x.double()), y) * size
        parts = torch.autograd.grad(loss, list(module.parameters()))
        gradient = torch.cat([part.flatten() for part in parts])
        # Clients train on the mean, so that the step they take, as models' moves, is of that size.
        own = gradient if sign == "literal" else -0.5 * gradient / size
        alike = -(own - move).norm()
        if similarity == "cosine":
            alike = own @ move / own.norm() / move.norm()
        expected = -0.7 * loss + (0.3 * alike if k != 2 else 0)
        torch.testing.assert_close(found[k], expected.detach())


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_model_that_last_moved_as_a_client_steps_is_nearest_to_it(reduction: Reduction) -> None:
    local = LocalTraining(lr=0.5, batch_size="all", steps=1)
    step = do(local).columns["update"]
    shared = {"models": MODELS[:1].repeat(2, 1), "moves": torch.cat([step, 8 * step])}
    work = JointScore(local, 1.0, "euclidean", reduction=reduction)
    near, far = do(work, shared=shared).columns["scores"][0].tolist()
    assert near == pytest.approx(0, abs=1e-9)
    assert far == pytest.approx(-7 * float(step.norm()))


def test_the_model_with_the_best_joint_score_is_trained_unless_another_is_given() -> None:
    work = ChooseJointly(JointScore(LocalTraining(steps=1)))
    for given in (-1, 3):
        shared = {"moves": MODELS * 0, "given": torch.tensor(given)}
        found = do(work, shared=shared).columns
        best = int(found["scores"][0].argmax())
        chosen = best if given < 0 else given
        assert found["chosen"].tolist() == [chosen]
        alone = do(LocalTraining(steps=1), theta=MODELS[chosen])
        torch.testing.assert_close(found["update"], alone.columns["update"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_decimals_are_cut_off_without_overflow(dtype: torch.dtype) -> None:
    values = torch.tensor([0.0, 1.23456, -1.23456, 400.0], dtype=dtype)
    for digits in (2, 6, 30):
        cut = _cut(values, 10.0**digits)
        assert cut.dtype == dtype
        expected = (values.double() * 10.0**digits).trunc() / 10.0**digits
        near = 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(cut.double(), expected, rtol=near, atol=10.0**-digits * near)
