"""Losses by example, where too few clients have labels to judge by."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import umbel
from umbel.advice.losses import with_examples
from umbel.advice.trial import Contender, waiting
from umbel.client.batches import IGNORED


@pytest.mark.parametrize(("labelled", "by_example"), [(7, False), (6, False), (5, True)])
def test_clients_are_counted_that_have_a_label_to_judge_by(labelled: int, by_example: bool) -> None:
    x, y = np.ones((4, 3), dtype=np.float32), np.full((4, 3), IGNORED)
    y[2, 1] = 1
    test = [(x, y if client < labelled else np.full_like(y, IGNORED)) for client in range(8)]
    federation = umbel.Federation.from_arrays([(x, y)] * 8, test, num_classes=2)
    net = umbel.Net(
        lambda: torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Unflatten(1, (2, 3)))
    )
    one = waiting(Contender(name="one model", kind="one", algorithm=umbel.FedAvg()), 8)
    (found,) = with_examples(net, federation, [one])
    assert bool(found.examples) == by_example
