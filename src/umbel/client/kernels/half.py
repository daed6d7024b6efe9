"""Which products are faster in bfloat16, casts included: the one rule, by their sizes.

`python -m benchmarks.precision --products` measures what it rests on.
"""

from __future__ import annotations

ROWS, WORK = 64, 600_000
"""Examples of a model, and multiplications for them, from which on products of a layer are faster:
below, casting the weights takes as long as is saved."""

FEW, MANY, PLACES = 200, 400, 2_000
"""Examples of a client from which on a step by example is faster, if there are many slopes in a
mini-batch, or in any case; and how many slopes are many."""


def pays(rows: int, size_in: int, size_out: int) -> bool:
    """Whether the products of a layer are, of this many examples of each model."""
    return rows >= ROWS and rows * size_in * size_out >= WORK


def pays_by_example(rows: int, examples: int, size_out: int) -> bool:
    """Whether steps on the coefficients of a client's examples are."""
    return examples >= MANY or (examples >= FEW and rows * size_out >= PLACES)
