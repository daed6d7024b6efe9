"""Clients whose examples have many labels are judged by their labels, as in a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import umbel
from umbel.advice.gain_per_client import on_test
from umbel.advice.losses import example_losses
from umbel.client.batches import IGNORED, Batch

WORDS, LENGTH = 10, 12
LOCAL = umbel.LocalTraining(lr=0.3, epochs=2)


class Words(nn.Module):
    """Four scores for each word of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.embedding(x)).transpose(1, 2)
        return scores


def long_and_short(clients: int, seed: int = 0) -> list[Any]:
    """Half of a client's sequences are long and follow a rule; half have one label, by chance."""
    rng, found = np.random.default_rng(seed), []
    for client in range(clients):
        x = rng.integers(0, WORDS, (40, LENGTH))
        y = (x + client % 2) % 4
        y[1::2, 0] = rng.integers(0, 4, 20)
        y[1::2, 1:] = IGNORED
        found.append((x, y))
    return found


@pytest.fixture(scope="module")
def eight() -> tuple[umbel.Federation, umbel.Advice]:
    federation = umbel.Federation.from_arrays(long_and_short(8), num_classes=4)
    return federation, umbel.advise(federation, umbel.Net(Words), local=LOCAL, budget=6)


def test_the_mean_of_a_clients_losses_is_its_loss(
    eight: tuple[umbel.Federation, umbel.Advice],
) -> None:
    (federation, advice), net = eight, umbel.Net(Words)
    served = advice.verdict.one.served
    assert served is not None
    for client, losses in enumerate(example_losses(net, federation.train, advice.verdict.one)):
        batch = Batch(*federation.train.typed(client, net.dtype))
        theta = served.table[served.index[client]]
        assert losses.mean() == pytest.approx(float(batch.mean(net.losses(theta, batch))), rel=1e-5)


def test_a_fate_is_the_difference_of_the_losses_that_ways_are_compared_by(
    eight: tuple[umbel.Federation, umbel.Advice],
) -> None:
    _, advice = eight
    gains = [fate.gain for fate in advice.fates]
    lower = advice.verdict.beside.loss - advice.verdict.chosen.loss
    assert gains == pytest.approx(lower.tolist(), abs=1e-5)


def test_test_examples_without_labels_count_in_no_mean() -> None:
    test = long_and_short(3)
    test[1] = (test[1][0], np.full_like(test[1][1], IGNORED))
    federation = umbel.Federation.from_arrays(long_and_short(3), test, num_classes=4)
    advice = umbel.advise(federation, umbel.Net(Words), local=LOCAL, budget=3)

    found = on_test(umbel.Net(Words), federation, advice.verdict.one)

    labelled = federation.pick([0, 2])
    rows = advice.verdict.one.served
    assert rows is not None
    two = replace(advice.verdict.one, served=replace(rows, index=rows.index[[0, 2]]))
    assert found == pytest.approx(on_test(umbel.Net(Words), labelled, two))
    nobody = replace(federation, test=replace(federation.test, y=federation.test.y * 0 + IGNORED))
    assert on_test(umbel.Net(Words), nobody, advice.verdict.one) is None


def test_newcomers_are_judged_by_labels_as_the_runs_clients_are(tmp_path: Path) -> None:
    examples = long_and_short(6)
    federation = umbel.Federation.from_arrays(examples, examples, num_classes=4)
    method = umbel.IFCA(2, umbel.LocalTraining(lr=0.3, epochs=5))
    result = umbel.Run(method, federation, umbel.Net(Words)).save(tmp_path / "run", 4)

    assigned = result.assign(federation)

    assert assigned.losses is not None
    assert assigned.losses.tolist() == pytest.approx([c.loss for c in result.clients], rel=1e-4)
    assert set(assigned.unlike) == set()
