"""The losses of objectives, against what they are by definition."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, vmap

from umbel.client.batches import IGNORED
from umbel.client.objectives import CLASSIFICATION, FEW, MANY


@pytest.mark.parametrize("examples", [1, MANY - 1, MANY, MANY + 13])
@pytest.mark.parametrize("classes", [2, FEW - 1, FEW])
def test_the_loss_of_a_class_is_minus_its_log_probability(examples: int, classes: int) -> None:
    draws = torch.Generator().manual_seed(0)
    logits = torch.randn(examples, classes, generator=draws, dtype=torch.float64)
    y = torch.randint(0, classes, (examples,), generator=draws)
    right = logits.gather(1, y[:, None])[:, 0]
    torch.testing.assert_close(CLASSIFICATION.losses(logits, y), logits.logsumexp(1) - right)
    slope = grad(lambda given: CLASSIFICATION.losses(given, y).sum())(logits)
    one_hot = torch.nn.functional.one_hot(y, classes)
    torch.testing.assert_close(slope, logits.softmax(1) - one_hot)
    several = torch.stack([logits, -logits])
    losses = vmap(CLASSIFICATION.losses, (0, None))(several, y)
    torch.testing.assert_close(losses[1], CLASSIFICATION.losses(-logits, y))


@pytest.mark.parametrize("examples", [4, MANY])
def test_labels_that_are_ignored_have_no_loss(examples: int) -> None:
    logits, y = torch.randn(examples, 3), torch.zeros(examples, dtype=torch.long)
    y[1::2] = IGNORED
    losses = CLASSIFICATION.losses(logits, y)
    assert losses.shape == (examples,)
    assert (losses[0::2] > 0).all()
    assert (losses[1::2] == 0).all()
