"""Whether an evaluation would leave a network that needs several examples with a single one."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from umbel.checks import UsageError
from umbel.client.batches import SLICE
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.preflight.fit_alone import Trouble


def check_slices(trouble: Trouble, federation: Federation, settings: Any) -> None:
    """Raise `UsageError` if a slice of one example would be evaluated.

    `trouble` is what the network has with it; `settings` are those of the method.
    """
    splits = {"test": federation.test, "validation": federation.validation}
    if _asks_for_more(settings):
        splits["training"] = federation.train
    for name, split in splits.items():
        if split is not None:
            _check_sizes(trouble, federation, name, split)


def _asks_for_more(settings: Any) -> bool:
    """Whether a method, or one within it, may have clients evaluate their training examples."""
    fine = getattr(settings, "only_trains", {})
    if fine is None or any(getattr(settings, name) not in fine[name] for name in fine):
        return True
    within = fields(settings) if is_dataclass(settings) else ()
    return any(_asks_for_more(getattr(settings, field.name)) for field in within)


def _check_sizes(trouble: Trouble, federation: Federation, name: str, split: Split) -> None:
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
        f"client {federation.names[int(alone[0])]}: {left}, and {trouble.why}: leave the example "
        f"out, or {trouble.otherwise}"
    )
