"""Products in both precisions, by their sizes: the rule in `umbel.client.kernels` is from these.

Each is of several models at once, with all casts, and as often as it happens in a step.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import TypeAlias

import torch
from torch import Tensor

from umbel.client.kernels.products import is_faster_in_half, product, put_weight

MODELS, ROWS = 16, [10, 20, 32, 64, 128, 256]

Sizes: TypeAlias = tuple[int, int, int]
"""Examples of a mini-batch, inputs, and outputs."""

Work: TypeAlias = Callable[[bool], object]
"""Does the products, in bfloat16 or not."""

LAYERS = [(200, 10), (784, 10), (64, 64), (200, 200), (784, 200), (512, 512)]


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


def drawn(sizes: Sizes) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs, weights (out, in), biases and slopes of several models."""
    rows, size_in, size_out = sizes
    torch.manual_seed(0)
    shapes = [(rows, size_in), (size_out, size_in), (1, size_out), (rows, size_out)]
    x, weight, bias, slope = (torch.rand(MODELS, *shape) - 0.5 for shape in shapes)
    return x, weight, bias, slope


KINDS: dict[str, Callable[[Sizes], Work]] = {
    "outputs": outputs,
    "outputs and gradient": gradients,
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
            "times": {n: times_faster(build((n, *pair)), repeats) for n in ROWS},
            "taken": [rows for rows in ROWS if is_faster_in_half(rows, *pair)],
        }
        for name, build in KINDS.items()
        for pair in LAYERS
    ]
