"""An objective that can't be learnt is refused before the first round, and told why."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

import umbel
from tests.engines.modules import OwnStatistics, chain
from tests.preflight.fitted import LABELS, UNKNOWN, Doing, clients, numbers
from umbel.client.objectives import CLASSIFICATION, REGRESSION, Objective
from umbel.engines import make_engine

ONE_HOT = np.eye(3, dtype=int)[LABELS]


@pytest.mark.parametrize("objective", [CLASSIFICATION, REGRESSION])
@pytest.mark.parametrize("kind", [int, float])
def test_classes_as_indicators_are_refused_where_a_class_is_learnt(
    objective: Objective, kind: type
) -> None:
    net = umbel.Net(lambda: nn.Linear(6, 3), objective)
    said = r"y: an example has 3 numbers, one 1 and .* y.argmax\(1\); or, .* umbel.BINARY"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(net, clients(numbers(12, 6), ONE_HOT.astype(kind)))


def _distance(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs - y).abs().mean(1)


def _score(outputs: Tensor, y: Tensor) -> Tensor:
    return 1 - _distance(outputs, y)


def test_an_accuracy_outside_0_and_1_is_refused_before_the_first_round() -> None:
    federation = clients(numbers(12, 3), 5 + numbers(12, 1))
    with pytest.raises(ValueError, match=r"objective.correct: -.* in \[0, 1\].*clip"):
        make_engine(umbel.Net(lambda: nn.Linear(3, 1), Objective(_distance, _score)), federation)
    clipped = Objective(_distance, lambda o, y: _score(o, y).clamp(0, 1))
    make_engine(umbel.Net(lambda: nn.Linear(3, 1), clipped), federation)


@pytest.mark.parametrize("what", ["outputs", "y"])
@pytest.mark.parametrize("name", ["losses", "correct"])
def test_an_objective_that_writes_in_what_it_is_given_is_refused(name: str, what: str) -> None:
    def writes(outputs: Tensor, y: Tensor) -> Tensor:
        return (
            _distance(outputs.clamp_(0, 1), y)
            if what == "outputs"
            else _distance(outputs, y.neg_())
        )

    functions = {"losses": _distance, "correct": lambda o, y: _distance(o, y) < 1, name: writes}
    net = umbel.Net(lambda: nn.Linear(3, 1), Objective(**functions))
    with pytest.raises(umbel.UsageError, match=f"^objective.{name} writes in {what}, .* a copy"):
        make_engine(net, clients(numbers(12, 3), numbers(12, 1)))


def _right(outputs: Tensor, y: Tensor) -> Tensor:
    return outputs.argmax(1) == y


def _each(outputs: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(outputs, y, reduction="none")


def _hardest(outputs: Tensor, y: Tensor) -> Tensor:
    losses = _each(outputs, y)
    return losses * (losses >= losses.median())


def _contrastive(outputs: Tensor, y: Tensor) -> Tensor:
    near = normalize(outputs) @ normalize(outputs).t()
    return -(near.log_softmax(1) * (y[:, None] == y)).sum(1)


def _own(losses: Callable[[Tensor, Tensor], Tensor]) -> Objective:
    return Objective(losses, _right)


AMONG_OTHERS = {
    "the hardest half": _hardest,
    "contrasts": _contrastive,
    "a part of the sum": lambda o, y: _each(o, y) / len(y),
    "drawn": lambda o, y: _each(o + torch.rand_like(o), y),
}


@pytest.mark.parametrize("losses", AMONG_OTHERS.values(), ids=AMONG_OTHERS)
def test_a_loss_that_compares_examples_divides_or_draws_is_told_so(
    losses: Callable[[Tensor, Tensor], Tensor],
) -> None:
    net = umbel.Net(chain(6, 3), _own(losses))
    said = (
        r"objective\.losses: the value of an example depends on the others, or on chance: a loss "
        "that compares the examples of a batch, divides by their number or draws at random can't"
    )
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(net, clients(numbers(60, 6), np.arange(60) % 3))


def test_only_shapes_that_are_compared_each_with_each_are_called_so() -> None:
    column, row = (numbers(12), numbers(12, 1))
    error = Objective(lambda o, y: ((o - y) ** 2).flatten(1).mean(1), lambda o, y: o[:, 0] > y)
    said = r"outputs of shape \(2, 1\) and y of shape \(2,\), every output with every y; give"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(umbel.Net(lambda: nn.Linear(4, 1), error), clients(numbers(12, 4), column))
    flat = Objective(lambda o, y: ((o[:, None] - y[:, 0]) ** 2).mean(1), lambda o, y: o > y[:, 0])
    net = umbel.Net(lambda: nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), flat)
    with pytest.raises(umbel.UsageError, match=r"\(2,\) and y of shape \(2, 1\), every output"):
        make_engine(net, clients(numbers(12, 4), row))


def test_what_an_objective_would_learn_is_refused_and_what_stays_is_taken() -> None:
    federation, weights = clients(numbers(12, 4), LABELS), nn.Parameter(torch.ones(3))
    net = umbel.Net(chain(4, 3), _own(lambda o, y: _each(o * weights, y)))
    with pytest.raises(umbel.UsageError, match=UNKNOWN.format("3,")):
        make_engine(net, federation)
    weights.requires_grad_(False)
    make_engine(net, federation)


def _missing(outputs: Tensor, y: Tensor) -> Tensor:  # noqa: ARG001
    return {"one": outputs}["weights"]


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (Objective(_missing, _right), r"objective\.losses raised KeyError: 'weights' for"),
        (Objective(_each, _missing), r"objective\.correct raised KeyError: 'weights' for"),
    ],
)
def test_what_an_objective_raises_is_told_as_the_objectives(
    objective: Objective, said: str
) -> None:
    shapes = r" outputs of shape \(2, 3\) and y of shape \(2,\)$"
    with pytest.raises(umbel.UsageError, match=f"^{said}{shapes}"):
        make_engine(umbel.Net(chain(4, 3), objective), clients(numbers(12, 4), LABELS))


@pytest.mark.parametrize("objective", [CLASSIFICATION, _own(_each)])
def test_outputs_that_are_nan_from_the_start_are_refused_and_infinite_ones_are_not(
    objective: Objective,
) -> None:
    small, large = (clients(numbers(60, 4) * size, np.arange(60) % 3) for size in (1, 1e4))
    roots = umbel.Net(partial(Doing, lambda x: (x - 5).sqrt()), objective)
    said = (
        "the network's outputs: nan before any training: look for a division by 0 or the logarithm "
        "of a negative number in forward$"
    )
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(roots, small)
    overflown = umbel.Net(partial(Doing, lambda x: x.exp() / x.exp()), objective)
    with pytest.raises(umbel.UsageError, match=r"forward; and scale the inputs, which .*e\+04"):
        make_engine(overflown, large)
    first = torch.tensor([0.0, 0.0, -torch.inf])
    masked = umbel.Net(partial(Doing, lambda x: x + first), objective)
    make_engine(masked, clients(numbers(60, 4), np.arange(60) % 2))


def test_what_is_no_objective_is_refused() -> None:
    for wrong in ("regression", nn.CrossEntropyLoss()):
        with pytest.raises(umbel.UsageError, match=r"such as .*umbel\.REGRESSION"):
            umbel.Net(chain(3, 1), wrong)  # type: ignore[arg-type]
    with pytest.raises(umbel.UsageError, match="Objective: losses: 3 is not a function"):
        Objective(3, 4)  # type: ignore[arg-type]
    with pytest.raises(umbel.UsageError, match="moving: 'running' is not a list"):
        umbel.Net(OwnStatistics, moving="running")
