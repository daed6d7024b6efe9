"""How evenly clients are served, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import pytest

from umbel.folder.clients_file import Client
from umbel.result.statistics.fairness import (
    worse_by_more_than_chance,
    worse_off,
    worst_tenth,
)


def clients(values: Sequence[float | None], examples: int | None = 100) -> list[Client]:
    """Clients with these accuracies, and losses that are one minus these."""
    losses = [None if value is None else 1 - value for value in values]
    return [
        Client(f"site {n}", n, 0, accuracy=value, loss=loss, test_examples=examples)
        for n, (value, loss) in enumerate(zip(values, losses, strict=True))
    ]


def test_the_worst_tenth_is_the_mean_of_its_clients_rounded_up() -> None:
    accuracies = [0.5, 0.9, 0.4, 0.8, 0.7, 0.6, 0.9, 0.9, 0.9, 0.9]
    assert worst_tenth(accuracies, by_loss=False) == 0.4
    assert worst_tenth([*accuracies, 0.95], by_loss=False) == pytest.approx(0.45)
    assert worst_tenth([*accuracies, *accuracies], by_loss=False) == pytest.approx(0.4)
    assert worst_tenth([0.7], by_loss=False) == 0.7


def test_of_losses_the_worst_are_the_highest() -> None:
    assert worst_tenth([0.1, 3.0, 2.0], by_loss=True) == 3.0


def test_clients_count_as_worse_off_by_name_and_if_both_results_are_known() -> None:
    before = clients([0.8, 0.8, 0.8, 0.8, None])
    now = clients([0.9, 0.8, 0.7, 0.5, 0.1])[::-1]
    found = worse_off(now, before, by_loss=False)
    assert found is not None
    assert found.share == 0.5  # two of the four that are known
    assert found.surely == 0.25  # of these 0.5 alone is far below 0.8 on 100 examples
    assert worse_off(now, clients([])[:0], by_loss=False) is None


def test_a_lower_accuracy_is_beyond_chance_by_the_standard_error_of_the_test_examples() -> None:
    # Agresti & Caffo: one right and one wrong answer more, so 91 and 79 of 102.
    error = sqrt((91 / 102 * 11 / 102 + 79 / 102 * 23 / 102) / 102)
    assert 1.645 * error < 12 / 102
    assert worse_by_more_than_chance(0.78, 0.90, 100)
    # 91 and 85: the difference is 1.30 standard errors.
    assert not worse_by_more_than_chance(0.84, 0.90, 100)
    assert not worse_by_more_than_chance(0.90, 0.78, 100)
    # One of five answers more is no proof, though an error estimated from 5 of 5 would be zero.
    assert not worse_by_more_than_chance(0.8, 1.0, 5)


def test_without_numbers_of_test_examples_and_of_losses_nobody_is_surely_worse_off() -> None:
    old = worse_off(clients([0.1, 0.9], None), clients([0.9, 0.9], None), by_loss=False)
    assert old is not None
    assert (old.share, old.surely) == (0.5, None)
    loss = worse_off(clients([0.1, 0.9]), clients([0.9, 0.8]), by_loss=True)
    assert loss is not None
    assert (loss.share, loss.surely) == (0.5, None)
