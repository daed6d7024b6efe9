"""Products of stacks of matrices, for forward and backward passes through a chain of layers.

Letters: C models, B examples. Products in bfloat16 use rounded factors; sums are computed in single
precision, and rounded again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from umbel.client.kernels import onednn

HALF_ROWS, HALF_WORK = 64, 600_000
"""Fewest examples of a model, and fewest multiplications, for faster products of a layer in
bfloat16, by `python -m benchmarks.precision --parts products`: below, casting the weights takes as
long as it saves."""


def is_faster_in_half(rows: int, size_in: int, size_out: int) -> bool:
    """Whether a layer's products are faster in bfloat16, with this many examples of each model."""
    return rows >= HALF_ROWS and rows * size_in * size_out >= HALF_WORK


def product(
    rows: Tensor, matrices: Tensor, bias: Tensor | None = None, half: bool = False
) -> Tensor:
    """rows (C, B, in) times matrices (C, in, out), plus bias (C, 1, out); either C may be 1.

    With `half`, the product is computed in bfloat16; the result has the type of the bias, or of
    rows.
    """
    if not half:
        return _product(rows, matrices, bias)
    kind = rows.dtype if bias is None else bias.dtype
    if len(rows) == 1 < len(matrices):
        # A batched product would copy the rows for each matrix.
        out = rows.new_empty(len(matrices), rows.shape[1], matrices.shape[2], dtype=kind)
        for into, matrix in zip(out, matrices, strict=True):
            into.copy_(rows[0].bfloat16() @ matrix.bfloat16())
    else:
        out = _product(rows.bfloat16(), matrices.bfloat16()).to(kind)
    return out if bias is None else out.add_(bias)


def _product(rows: Tensor, matrices: Tensor, bias: Tensor | None = None) -> Tensor:
    if len(matrices) == 1:
        flat, of_bias = rows.flatten(0, 1), None if bias is None else bias[0, 0]
        return matmul(flat, matrices[0], of_bias).view(*rows.shape[:2], -1)
    rows = rows.expand(len(matrices), -1, -1)
    if onednn.is_faster_for(rows.shape[1], matrices[0]):
        out = rows.new_empty(*rows.shape[:2], matrices.shape[2])
        for into, left, right in zip(out, rows, matrices, strict=True):
            into.copy_(onednn.linear(left, right.t()))
        return out if bias is None else out.add_(bias)
    return torch.bmm(rows, matrices) if bias is None else torch.baddbmm(bias, rows, matrices)


def matmul(rows: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows (B, in) times a matrix (in, out), plus bias (out,)."""
    if onednn.is_faster_for(len(rows), matrix):
        return onednn.linear(rows, matrix.t(), bias)
    return rows @ matrix if bias is None else torch.addmm(bias, rows, matrix)


def forward(layers: Sequence[Sequence[Tensor]], x: Tensor, half: Sequence[bool]) -> list[Tensor]:
    """The inputs of each layer and then the outputs, each (C, B, size).

    Layers are weights (C, out, in), and bias (C, 1, out) if there is one; `half` says for each
    layer whether its product is computed in bfloat16.
    """
    passed = [x.flatten(2)]
    for number, (weight, *biases) in enumerate(layers):
        bias = biases[0] if biases else None
        out = product(passed[-1], weight.transpose(1, 2), bias, half=half[number])
        passed.append(out.relu_() if number + 1 < len(layers) else out)
    return passed


def back(
    layers: Sequence[Sequence[Tensor]],
    passed: Sequence[Tensor],
    slope: Tensor,
    half: Sequence[bool],
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Numbers, slopes (C, B, out) by outputs, and inputs of the layers, from last to first."""
    for number in range(len(layers) - 1, -1, -1):
        inputs, of_outputs = passed[number], slope
        if number:
            slope = product(of_outputs, layers[number][0], half=half[number])
            slope = torch.ops.aten.threshold_backward(slope, inputs, 0)
        yield number, of_outputs, inputs.expand(len(of_outputs), -1, -1)


def put_weight(weight: Tensor, of_outputs: Tensor, inputs: Tensor, half: bool) -> None:
    """Write the gradient into `weight` (C, out, in), from slopes (C, B, out), inputs (C, B, in)."""
    if half:
        weight.copy_(torch.bmm(of_outputs.transpose(1, 2).bfloat16(), inputs.bfloat16()))
        return
    if not onednn.is_faster_for(inputs.shape[1], weight[0]):
        weight.baddbmm_(of_outputs.transpose(1, 2), inputs, beta=0)
        return
    for into, left, right in zip(weight, of_outputs.transpose(1, 2), inputs, strict=True):
        into.copy_(onednn.linear(left, right.t()))
