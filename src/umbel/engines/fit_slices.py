"""Whether an evaluation leaves the network with a single example, where it needs several."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from umbel.checks import UsageError
from umbel.client.batches import SLICE
from umbel.client.drawing import drawing_from
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.engines.explained import fails_alone


def check_slices(net: Net, federation: Federation, settings: Any, x: Tensor) -> None:
    """Raise `UsageError` where a slice of one example would be evaluated, and the network can't.

    `x` (1, ...) is an input that it is tried on; `settings` are those of the method.
    """
    if not fails_alone(lambda: _evaluate(net, x)):
        return
    splits = {"test": federation.test, "validation": federation.validation}
    if _asks_for_more(settings):
        splits["training"] = federation.train
    for name, split in splits.items():
        if split is not None:
            _check_sizes(federation, name, split)


def _evaluate(net: Net, x: Tensor) -> None:
    with torch.no_grad(), drawing_from(seed=0):
        net.outputs(net.new(seed=0), x)


def _asks_for_more(settings: Any) -> bool:
    """Whether a method, or one within it, may have clients evaluate their training examples."""
    fine = getattr(settings, "only_trains", {})
    if fine is None or any(getattr(settings, name) not in fine[name] for name in fine):
        return True
    within = fields(settings) if is_dataclass(settings) else ()
    return any(_asks_for_more(getattr(settings, field.name)) for field in within)


def _check_sizes(federation: Federation, name: str, split: Split) -> None:
    """Slices are filled one after another, so that the last may be of a single example."""
    alone = np.flatnonzero(split.sizes % SLICE == 1)
    if not len(alone):
        return
    size = int(split.sizes[alone[0]])
    left = (
        f"it has one {name} example"
        if size == 1
        else f"its {size} {name} examples are evaluated in slices of {SLICE}, the last of one"
    )
    raise UsageError(
        f"client {federation.names[int(alone[0])]}: {left}, and batch normalisation without "
        "running statistics needs two: leave the example out, set track_running_stats=True, or "
        "use group normalisation"
    )
