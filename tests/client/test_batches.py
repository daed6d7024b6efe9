"""Means over a batch, of numbers and of vectors, with padding and without."""

from __future__ import annotations

import pytest
import torch

from umbel.client.batches import Batch

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
