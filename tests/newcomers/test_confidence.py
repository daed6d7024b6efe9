"""A newcomer's cluster is said to be the best no more often than it is."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from umbel.newcomers.confidence import confidences

Losses = list[NDArray[np.float64]]


def drawn(examples: int, newcomers: int = 1000, models: int = 3) -> tuple[Losses, list[int]]:
    """Losses of models that differ less than examples do, and which is the best in truth."""
    rng = np.random.default_rng(examples)
    truth = 0.6 * rng.normal(size=(newcomers, 1, models))
    losses = truth + rng.normal(size=(newcomers, examples, models))
    return list(losses), truth[:, 0].argmin(1).tolist()


@pytest.mark.parametrize("examples", [2, 5])
def test_who_is_said_to_be_sure_is_right_as_often_as_said(examples: int) -> None:
    losses, best = drawn(examples)
    chosen = [int(mine.mean(0).argmin()) for mine in losses]
    sure = np.array(confidences(losses, chosen))
    right = np.array(chosen) == best
    assert right.mean() > 0.4
    for least in (0.6, 0.8, 0.9):
        said = sure >= least
        assert said.sum() < 20 or right[said].mean() > least - 0.05


def clear(examples: int) -> NDArray[np.float64]:
    """Losses of three models, the first of which is the best by far."""
    return np.random.default_rng(0).normal(np.array([0.0, 1.0, 1.0]), size=(examples, 3))


def test_two_examples_that_agree_by_chance_are_not_enough() -> None:
    losses, _ = drawn(2)
    lucky = np.array([[0.1, 0.4, 0.5], [0.1, 0.4001, 0.5001]])
    assert confidences([lucky], [0])[0] > 0.99
    assert confidences([lucky, *losses], [0] * (1 + len(losses)))[0] < 0.5


def test_many_examples_make_sure_whoever_else_is_placed() -> None:
    losses, _ = drawn(2)
    assert confidences([clear(500), *losses], [0] * (1 + len(losses)))[0] > 0.99


def test_a_cluster_that_another_rule_chose_against_the_losses_is_doubtful() -> None:
    assert confidences([clear(50)] * 2, [0, 1]) == pytest.approx([1.0, 0.0], abs=1e-3)


def test_of_one_example_nothing_is_known_and_of_one_cluster_all() -> None:
    assert confidences([np.array([[0.0, 9.0, 9.0, 9.0]])], [0]) == [0.25]
    assert confidences([np.array([[0.5], [0.7]]), np.array([[1.0]])], [0, 0]) == [1.0, 1.0]
