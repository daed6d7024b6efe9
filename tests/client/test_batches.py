"""Means over a batch, of numbers and of vectors, with padding and without."""

from __future__ import annotations

import math

import pytest
import torch

from umbel.client.batches import Batch
from umbel.client.kernels.schedule import BatchSchedule
from umbel.client.objectives import CLASSIFICATION

X, CLASSES = torch.arange(12.0).view(4, 3), torch.tensor([0, 1, 0, 1])
LABELS = torch.tensor([[0, 1], [1, -100], [-100, -100], [0, 0]])  # of words; -100 does not count


@pytest.mark.parametrize("y", [CLASSES, LABELS], ids=["a label each", "many labels"])
@pytest.mark.parametrize(
    "keep", [None, torch.tensor([True, False, True, True]), torch.zeros(4, dtype=torch.bool)]
)
def test_shares_weigh_vectors_as_the_mean_weighs_numbers(
    keep: torch.Tensor | None, y: torch.Tensor
) -> None:
    batch = Batch(X, y, keep)
    vectors = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    means = batch.shares(vectors.dtype) @ vectors
    torch.testing.assert_close(means, torch.stack([batch.mean(each) for each in vectors.T]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_means_of_half_precision_are_over_more_than_float16_can_count(dtype: torch.dtype) -> None:
    ones = torch.ones(70_000, dtype=dtype)
    batch = Batch(ones[:, None], torch.zeros(70_000), torch.arange(70_000) < 66_000)
    assert batch.mean(ones) == 1
    assert float(batch.shares(dtype).double().sum()) == pytest.approx(1, abs=0.01)
    everyone = torch.arange(70_000)
    rows = torch.stack([everyone.where(everyone < 66_000, -1), everyone])[:, None]
    (first,) = BatchSchedule.of(rows).batches(dtype)
    assert first.shares.double().sum(1).tolist() == pytest.approx([1, 1], abs=0.01)
    outputs = torch.zeros(1, 2, 70_000, dtype=dtype)
    loss = CLASSIFICATION.losses(outputs, torch.zeros(1, 70_000, dtype=torch.long))
    assert float(loss) == pytest.approx(math.log(2), rel=0.01)
