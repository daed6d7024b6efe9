"""A client whose labels do not count has no score, tuned or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import umbel
from umbel.client.batches import IGNORED

LOCAL = umbel.LocalTraining(lr=0.05, epochs=1, batch_size=4)
PERSONAL = umbel.Personal(lr=0.3, epochs=(0, 3), batch_size=4)


def sequences(seed: int, labelled: bool = True) -> tuple[Any, Any]:
    """Twelve sequences of three places, each with a label of its own."""
    made = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (12, 3), generator=made)
    x = 0.3 * torch.randn(12, 4, 3, generator=made)
    x[:, 0] += 2 * y - 1
    return x, y if labelled else torch.full_like(y, IGNORED)


@pytest.mark.parametrize("without", ["test", "validation"])
@pytest.mark.parametrize("metrics", [(), ("macro-f1",)])
def test_labels_that_do_not_count_enter_no_mean(without: str, metrics: tuple[str, ...]) -> None:
    def run(clients: int) -> Any:
        last = [n == 2 for n in range(clients)]
        federation = umbel.Federation.from_arrays(
            [sequences(n) for n in range(clients)],
            [sequences(10 + n, not (last[n] and without == "test")) for n in range(clients)],
            validation=[
                sequences(20 + n, not (last[n] and without == "validation")) for n in range(clients)
            ],
        )
        net = umbel.Net(lambda: nn.Conv1d(4, 2, 1))
        made = umbel.Run(
            umbel.LocalOnly(LOCAL), federation, net, personal=PERSONAL, metrics=metrics
        )
        *_, (_, record, scores) = made.scored_rounds(2, made.start(2), 0)
        return record, scores

    (_, scores), (_, of_two) = run(3), run(2)
    assert scores.tuning is not None
    assert of_two.tuning is not None
    assert scores.tuning.validation_loss[:2] == pytest.approx(of_two.tuning.validation_loss)
    assert scores.accuracy[:2] == pytest.approx(of_two.accuracy)
    if without == "test":
        assert np.isnan([scores.accuracy[2], scores.loss[2]]).all()
    else:
        assert np.isnan(scores.tuning.validation_loss[2])
        assert scores.tuning.epochs[2] == 0
