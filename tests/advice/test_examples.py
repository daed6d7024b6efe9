"""Clients are compared by what their examples say."""

from __future__ import annotations

import numpy as np

import umbel
from umbel.advice.examples import pooled


def test_several_answers_of_yes_and_no_are_compared_question_by_question() -> None:
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(12, 3)) for _ in range(4)]
    y = [(rows[:, :2] * (-1) ** n > 0).astype(np.int64) for n, rows in enumerate(x)]
    whole = umbel.Federation.from_arrays(list(zip(x, y, strict=True)))
    real = umbel.Federation.from_arrays([(a, b.astype(float)) for a, b in zip(x, y, strict=True)])
    found = pooled(whole, 0, umbel.BINARY)
    assert found.targets.tolist() == pooled(real, 0, umbel.BINARY).targets.tolist()
    assert found.labels is None
    assert found.classes is None
