"""Products in both precisions, by their sizes: `umbel.client.kernels.half` has its rule from these.

Each is of several models at once, with all casts, and as often as it happens in a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import TypeAlias

import torch
from torch import Tensor

from umbel.client.descent import Descent
from umbel.client.kernels.by_example import ByExample
from umbel.client.kernels.half import is_faster, pays_by_example
from umbel.client.kernels.moving import Moving, Path, Weights
from umbel.client.kernels.products import product, put_weight
from umbel.client.optimizers import SGD

MODELS, ROWS = 16, [10, 20, 32, 64, 128, 256]

DESCENT = Descent(0.01, 0.0, SGD())

Sizes: TypeAlias = tuple[int, int, int]
"""Examples of a mini-batch; inputs, or examples of a client; outputs."""

Work: TypeAlias = Callable[[bool], object]
"""Does the products, in bfloat16 or not."""

LAYERS = [(200, 10), (784, 10), (64, 64), (200, 200), (784, 200), (512, 512)]
EXAMPLES = [(100, 200), (200, 50), (200, 200), (500, 50), (500, 200), (1000, 200)]


@dataclass(frozen=True)
class Kind:
    """Products of one kind, and the rule that says whether bfloat16 is faster."""

    build: Callable[[Sizes], Work]
    rule: Callable[[int, int, int], bool]
    sizes: list[tuple[int, int]]
    most: int | None = None  # which of the sizes a mini-batch can't be larger than

    def rows(self, pair: tuple[int, int]) -> list[int]:
        """Sizes of mini-batches."""
        return [rows for rows in ROWS if self.most is None or rows <= pair[self.most]]


def outputs(sizes: Sizes) -> Work:
    """Outputs of a layer."""
    x, weight, bias, _ = drawn(sizes)
    return lambda half: product(x, weight.transpose(1, 2), bias, half=half)


def gradients(sizes: Sizes) -> Work:
    """Outputs of a layer, and the gradient of its weights."""
    x, weight, bias, slope = drawn(sizes)
    into = torch.empty_like(weight)

    def run(half: bool) -> None:
        product(x, weight.transpose(1, 2), bias, half=half)
        put_weight(into, slope, x, half)

    return run


def steps(sizes: Sizes) -> Work:
    """A step on the weights of a layer."""
    x, weight, bias, slope = drawn(sizes)
    paths = [Weights.of(weight, bias, DESCENT, half) for half in (False, True)]
    return lambda half: _step(paths[half], x.bfloat16() if half else x, slope)


def steps_by_example(sizes: Sizes) -> Work:
    """A step on the coefficients of a client's examples."""
    rows, examples, size_out = sizes
    _, received, bias, slope = drawn((rows, size_out, examples))
    taken = torch.stack([torch.randperm(examples)[:rows] + n * examples for n in range(MODELS)])
    paths = [_by_example(received, bias, half) for half in (False, True)]
    return lambda half: _step(paths[half], taken, slope[..., :1].expand(-1, -1, size_out))


def _by_example(received: Tensor, bias: Tensor, half: bool) -> ByExample:
    count, examples, size_out = received.shape
    products, zeros = torch.rand(count, examples, examples), torch.zeros(count, examples, size_out)
    return ByExample(
        products.bfloat16() if half else products,
        received,
        Moving.from_zero(zeros, DESCENT),
        zeros.bfloat16() if half else None,
        Moving.of(bias[..., :1].expand(-1, -1, size_out), DESCENT),
        torch.zeros(1, dtype=torch.long),
        [torch.zeros(1, 1)],
        half,
    )


def _step(path: Path, taken: Tensor, slope: Tensor) -> None:
    path.forward(taken)
    path.step(slope, taken, DESCENT)


def drawn(sizes: Sizes) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs, weights (out, in), biases and slopes of several models."""
    rows, size_in, size_out = sizes
    torch.manual_seed(0)
    shapes = [(rows, size_in), (size_out, size_in), (1, size_out), (rows, size_out)]
    x, weight, bias, slope = (torch.rand(MODELS, *shape) - 0.5 for shape in shapes)
    return x, weight, bias, slope


KINDS = {
    "outputs": Kind(outputs, is_faster, LAYERS),
    "outputs and gradient": Kind(gradients, is_faster, LAYERS),
    "step": Kind(steps, is_faster, LAYERS),
    "step by example": Kind(
        steps_by_example, lambda _rows, examples, _out: pays_by_example(examples), EXAMPLES, most=0
    ),
}


def times_faster(work: Work, repeats: int) -> float:
    """How many times as fast work is when told True: the best of each, in turns."""
    best = [float("inf"), float("inf")]
    for way in (False, True):
        work(way)
    for _ in range(repeats):
        for way in (False, True):
            start = process_time()
            work(way)
            best[way] = min(best[way], process_time() - start)
    return best[False] / best[True]


def measured(repeats: int = 20) -> list[dict[str, object]]:
    """One row for each kind of product and size of a layer."""
    return [
        {
            "kind": name,
            "sizes": list(pair),
            "times": {n: times_faster(kind.build((n, *pair)), repeats) for n in kind.rows(pair)},
            "taken": [rows for rows in kind.rows(pair) if kind.rule(rows, *pair)],
        }
        for name, kind in KINDS.items()
        for pair in kind.sizes
    ]
