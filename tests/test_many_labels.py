"""Clients whose examples have many labels are judged by their labels, as in a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import umbel
from umbel.advice.advice_folder import save
from umbel.advice.gain_per_client import fate_of, on_test
from umbel.advice.losses import example_losses
from umbel.advice.summary import summary
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


def test_values_without_their_weights_have_the_weighted_mean_and_its_error() -> None:
    y = torch.tensor([[1, 2, 3], [1, IGNORED, IGNORED], [IGNORED] * 3, [1, 0, IGNORED]])
    batch, values = Batch(torch.zeros(4, 1), y), torch.tensor([1.0, 5.0, 100.0, 2.0])

    alike = batch.unweighted(values)

    mean = (3 * 1 + 1 * 5 + 2 * 2) / 6
    assert alike.tolist() == pytest.approx(
        [mean + 1.5 * (1 - mean), mean + 0.5 * (5 - mean), mean + 2 - mean]
    )
    assert float(alike.mean()) == pytest.approx(float(batch.mean(values)))
    same = Batch(torch.zeros(2, 1), torch.tensor([0, 1]))
    assert same.unweighted(values[:2]).tolist() == [1.0, 5.0]


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


def test_advice_is_kept_though_a_test_loss_is_beyond_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    train = [(rng.normal(size=(20, 2)), rng.normal(size=20)) for _ in range(6)]
    test = [(x[:4].copy(), y[:4]) for x, y in train]
    test[0][0][0, 0] = 1e20
    federation = umbel.Federation.from_arrays(train, test)
    advice = umbel.advise(
        federation, umbel.Net(lambda: nn.Linear(2, 1), umbel.REGRESSION), budget=3
    )
    save(tmp_path / "advice", summary(advice), None)
    kept = json.loads((tmp_path / "advice" / "advice.json").read_text())
    assert None in [row["test_loss"] for row in kept["contenders"]]


def test_newcomers_are_judged_by_labels_as_the_runs_clients_are(tmp_path: Path) -> None:
    examples = long_and_short(6)
    federation = umbel.Federation.from_arrays(examples, examples, num_classes=4)
    method = umbel.IFCA(2, umbel.LocalTraining(lr=0.3, epochs=5))
    result = umbel.Run(method, federation, umbel.Net(Words)).save(tmp_path / "run", 4)

    assigned = result.assign(federation)

    assert assigned.losses is not None
    assert assigned.losses.tolist() == pytest.approx([c.loss for c in result.clients], rel=1e-4)
    assert set(assigned.unlike) == set()


class Yes(nn.Module):
    """Class 0 for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(1, 2, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sure = torch.stack([torch.ones(x.shape), torch.zeros(x.shape)], 1)
        none: torch.Tensor = self.head(x[:, :1].float())[:, :, None]
        return none + sure


@pytest.mark.parametrize(("examples", "labels"), [(7, 25), (7, 41), (30, 170), (30, 165)])
def test_a_client_that_has_all_labels_right_is_no_liar(examples: int, labels: int) -> None:
    """170 * (30 / 170) is more than 30 by rounding."""
    y = np.full(examples * LENGTH, IGNORED)
    y[:labels] = 0
    perfect = (np.zeros((examples, LENGTH), dtype=int), y.reshape(examples, LENGTH))
    sites = umbel.Federation.from_arrays([perfect] * 3, [perfect] * 3, num_classes=2)
    (_, record), *_ = umbel.Run(umbel.FedAvg(LOCAL), sites, umbel.Net(Yes)).rounds(1)
    assert (record.accuracy, record.missing) == (1.0, ())


def test_a_client_without_a_single_label_has_no_fate() -> None:
    none = np.zeros(0)
    assert np.isnan(fate_of(none, none, none).gain)
