"""Clients are compared by what their examples say."""

from __future__ import annotations

import numpy as np
import torch

import umbel
from umbel.advice.examples import pooled
from umbel.advice.facts import facts


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


def test_examples_in_bfloat16_are_compared_as_the_same_numbers_in_single_precision() -> None:
    x = [torch.randn(40, 3, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    half = umbel.Federation.from_arrays([(rows.bfloat16(), rows[:, 0].bfloat16()) for rows in x])
    single = umbel.Federation.from_arrays(
        [(rows.bfloat16().float(), rows[:, 0].bfloat16().float()) for rows in x]
    )
    found, expected = pooled(half, 0), pooled(single, 0)
    assert found.inputs.tolist() == expected.inputs.tolist()
    assert found.targets.tolist() == expected.targets.tolist()
    assert facts(half, 0) == facts(single, 0)
