"""The rule, by sizes, for products that are faster in bfloat16, casts included.

It is based on measurements by `python -m benchmarks.precision --parts products`.
"""

from __future__ import annotations

ROWS, WORK = 64, 600_000
"""Fewest examples of a model, and fewest multiplications, for faster products of a layer: below,
casting the weights takes as long as it saves."""

EXAMPLES = 300
"""Fewest examples of a client for faster steps on their coefficients."""


def is_faster(rows: int, size_in: int, size_out: int) -> bool:
    """Whether a layer's products are faster in bfloat16, with this many examples of each model."""
    return rows >= ROWS and rows * size_in * size_out >= WORK


def pays_by_example(examples: int) -> bool:
    """Whether steps on coefficients of this many examples of a client are faster in bfloat16."""
    return examples >= EXAMPLES
