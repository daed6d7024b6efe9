"""Which products are faster in bfloat16, casts included: the one rule, by their sizes.

`python -m benchmarks.precision --products` measures what it rests on.
"""

from __future__ import annotations

ROWS, WORK = 64, 600_000
"""Examples of a model, and multiplications for them, from which on products of a layer are faster:
below, casting the weights takes as long as is saved."""

EXAMPLES = 300
"""Examples of a client from which on steps on their coefficients are faster."""


def pays(rows: int, size_in: int, size_out: int) -> bool:
    """Whether a layer's products are faster in bfloat16, with this many examples of each model."""
    return rows >= ROWS and rows * size_in * size_out >= WORK


def pays_by_example(examples: int) -> bool:
    """Whether steps on coefficients of this many examples of a client are faster in bfloat16."""
    return examples >= EXAMPLES
