"""Products in single precision by oneDNN, beside the library that PyTorch multiplies with.

`python -m benchmarks.libraries`: how many times as fast oneDNN is for the products of 16 models, by
their sizes. `umbel.client.kernels.onednn` has its rule from these; what it takes is in bold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.__main__ import machine
from benchmarks.measure import pin, product_rate
from benchmarks.products import KINDS, ROWS, Work, times_faster
from benchmarks.report import product_row
from umbel.client.kernels import onednn

LAYERS = [(64, 64), (200, 200), (784, 64), (784, 200), (512, 512), (1024, 1024)]

PASSES = ("outputs", "outputs and gradient", "step")


def by_library(work: Work) -> Work:
    """The same work by oneDNN, whatever its size, when told True, else without it."""

    def run(fast: bool) -> object:
        with patch.object(onednn, "is_faster_for", lambda *_: fast):
            return work(False)

    return run


def rows_of(kind: str, repeats: int, taken: Callable[[int, Tensor], bool]) -> list[str]:
    """A line of a table for each layer; with `taken` the times in bold."""
    lines = []
    for size_in, size_out in LAYERS:
        weight, build = torch.empty(size_out, size_in), KINDS[kind]
        works = {str(rows): by_library(build((rows, size_in, size_out))) for rows in ROWS}
        row = {
            "kind": kind,
            "sizes": [size_in, size_out],
            "times": {rows: times_faster(work, repeats) for rows, work in works.items()},
            "taken": [rows for rows in ROWS if taken(rows, weight)],
        }
        lines.append(f"| {' | '.join(product_row(row, [*works]))} |")
    return lines


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.libraries", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    given = parser.parse_args()
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        raise SystemExit("this build of PyTorch has no oneDNN")
    pin()
    with patch.object(onednn, "is_faster", lambda: True):
        lines = [
            line for kind in PASSES for line in rows_of(kind, given.repeats, onednn.is_faster_for)
        ]
    used = "taken" if onednn.is_faster() else "not taken"
    square = torch.rand(2048, 2048)
    ways = [product_rate(way, square) / 1e9 for way in (torch.matmul, onednn.linear)]
    sys.stdout.write(
        f"{machine()}: best matrix products of {ways[0]:.0f} GFLOP/s, and of {ways[1]:.0f} by "
        f"oneDNN, which is {used} on this processor\n\n"
        f"| product | in | out | {' | '.join(map(str, ROWS))} |\n|{' --- |' * (len(ROWS) + 3)}\n"
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    main()
