"""Identify a user's own objective by the values that it gives for fixed outputs.

Its functions are often lambdas or closures, which a name does not tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor

from umbel.client.net import Net
from umbel.client.seeding import drawing_from
from umbel.data.federation import Federation
from umbel.preflight.sample import sample
from umbel.preflight.torch_errors import FAILURES
from umbel.run.digests import CLOSE, fingerprint, near

MOST, VALUES = 256, 2**20
"""Number of examples for which an objective is evaluated, and of values in all their outputs."""

ROUNDINGS = 16
"""Fingerprints may differ by this many roundings of the network's type."""

Prints = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]
"""Fingerprints of `losses`, `correct` and `mixed`."""

NOTHING: Prints = ((), (), ())
"""No fingerprints: for umbel's own objectives, and for folders of earlier versions."""


def objective_prints(net: Net, federation: Federation) -> Prints:
    """Return fingerprints of the net's objective, on a few y and on generated outputs.

    There are none if the network refuses the inputs; that is reported before the first round.
    """
    first = sample(net, federation)
    with suppress(*FAILURES), torch.no_grad(), drawing_from(seed=0):
        shape = net.outputs(net.new(seed=0), first.x).shape[1:]
        count = max(2, min(MOST, VALUES // max(1, shape.numel()), len(federation.train.x)))
        y = sample(net, federation, count).y
        # Functions of y, so that the same values come in every process.
        made_up = list(_made_up(torch.Size([count, *shape]), y, net.dtype))
        objective, weights = net.objective, torch.tensor([0.25, 0.75], dtype=net.dtype)
        return (
            _print(lambda outputs: objective.losses(outputs, y), made_up),
            _print(lambda outputs: objective.correct(outputs, y), made_up),
            # A mixture of two models, which give opposite outputs.
            _print(lambda o: objective.mixed(torch.stack([o, -o]), weights), made_up),
        )
    return NOTHING


def other_functions(there: Prints, here: Prints, net: Net) -> Iterator[str]:
    """The functions that give other values, a phrase for each; unknown fingerprints are skipped."""
    close = max(CLOSE, ROUNDINGS * net.eps)
    for name, old, new in zip(("losses", "correct", "mixed"), there, here, strict=True):
        if old and new and not near(old, new, close):
            yield f"the objective's {name} gives other values"


def _made_up(shape: torch.Size, y: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
    """Generate outputs of several sizes, and near y if possible: some functions take few.

    They are not computed by the network, whose last digits depend on the processor.
    """
    waves = (torch.arange(shape.numel(), dtype=torch.double) * 1.7 + 0.3).sin().reshape(shape)
    yield ((waves + 1) / 2).to(dtype)  # as probabilities are
    yield waves.to(dtype)
    yield (8 * waves).to(dtype)
    if y.is_floating_point() and y.numel() == waves.numel():
        for size in (0.003, 0.03, 0.3, 3):
            yield (y.double().reshape(shape) + size * waves).to(dtype)


def _print(function: Callable[[Tensor], Tensor], made_up: list[Tensor]) -> tuple[float, ...]:
    """Return the length and a weighted sum of each result; nothing for a refused output."""
    found: list[float] = []
    for outputs in made_up:
        with suppress(Exception):  # your own functions may raise any exception
            found += fingerprint([function(outputs)])[:2]
    return tuple(found)
