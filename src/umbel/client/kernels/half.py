"""Which products are faster in bfloat16, casts included: the one rule, by their sizes.

`python -m benchmarks.precision --products` measures what it rests on.
"""

from __future__ import annotations

ROWS, WORK = 20, 300_000
"""Examples of a model, and multiplications for them, from which on one pass is faster."""

STEP_ROWS, STEP_WORK = 64, 600_000
"""The same for a step, which also casts the weights, and adds a gradient to them that a product in
single precision adds itself."""

FEW, MANY, PLACES = 200, 400, 2_000
"""Examples of a client from which on a step by example is faster, if there are many slopes in a
mini-batch, or in any case; and how many slopes are many."""


def pays_in_a_pass(rows: int, size_in: int, size_out: int) -> bool:
    """Whether the products of one pass are, of this many examples of each model."""
    return rows >= ROWS and rows * size_in * size_out >= WORK


def pays_in_steps(rows: int, size_in: int, size_out: int) -> bool:
    """Whether steps on the weights are, with this many examples in a mini-batch."""
    return rows >= STEP_ROWS and rows * size_in * size_out >= STEP_WORK


def pays_by_example(rows: int, examples: int, size_out: int) -> bool:
    """Whether steps on the coefficients of a client's examples are."""
    return examples >= MANY or (examples >= FEW and rows * size_out >= PLACES)
