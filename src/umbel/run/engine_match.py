"""Checks that an engine given to a run was made for its network and its clients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest

import numpy as np
import torch
from torch import Tensor

from umbel.checks import UsageError
from umbel.client.layout import Entry
from umbel.client.net import Net
from umbel.client.objectives import OBJECTIVES
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.engines.sequential import Sequential
from umbel.engines.storage import Storage
from umbel.engines.vectorised import Vectorised
from umbel.run.digests import constants_print, near, structure
from umbel.summary import counted

ROWS = 4096
"""Number of examples of an engine that are compared with the run's at once."""


def check_holds(engine: Sequential | Vectorised, net: Net, federation: Federation) -> None:
    """Raise `UsageError` unless an engine was made for this network and these clients."""
    there = engine.given if isinstance(engine, Sequential) else engine.net
    said = chain(_other_network(there, net), _other_clients(engine.storage, federation))
    for difference in said:
        name = type(engine).__name__
        how = f"write {name}(net, federation) with the net and federation of the run"
        raise UsageError(f"engine: {difference}; {how}")


def _other_network(there: Net, here: Net) -> Iterator[str]:
    """Yield a sentence for each difference between the networks of an engine and of its run."""
    entries = zip_longest(*(each.layout.weights + each.layout.rest for each in (there, here)))
    for one, other in entries:
        if one != other:
            yield f"its network has {_tensor(one)}, but that of the run has {_tensor(other)}"
    if there.dtype != here.dtype:
        yield f"its network is of {there.dtype}, but that of the run is of {here.dtype}"
    # Objectives of the user's own may be equal although they were created for each network.
    known = OBJECTIVES.values()
    if there.objective != here.objective and (there.objective in known or here.objective in known):
        yield "its network has another objective than that of the run"
    if there.build is not here.build:
        # Two calls of one builder are trusted; other builders are compared by what they have built.
        if structure(there.modules.training) != structure(here.modules.training):
            yield "its network is not built like that of the run"
        if there.frozen_digest != here.frozen_digest:
            yield "the frozen values of its network differ from those of the run"
        prints = [constants_print(each, each.modules.training) for each in (there, here)]
        if not near(prints[0], prints[1]):
            yield "the constants of its network differ from those of the run"


def _other_clients(there: Storage, here: Federation) -> Iterator[str]:
    """Yield a sentence for each difference between an engine's examples and the run's."""
    clients = len(there.train.sizes)
    if clients != here.num_clients:
        yield f"it holds {counted(clients, 'client')}, but the run's federation {here.num_clients}"
    for name in ("train", "test", "validation"):
        if not _are_same(getattr(there, name), getattr(here, name)):
            what = "training" if name == "train" else name
            yield f"it holds other {what} examples than the run's federation"


def _tensor(entry: Entry | None) -> str:
    return "none" if entry is None else f"{entry.name} {tuple(entry.shape)}"


def _are_same(there: Split | None, here: Split | None) -> bool:
    """Return True if an engine's examples equal these, in the engine's type and on its device."""
    if there is None or here is None:
        return there is here
    return np.array_equal(there.offsets, here.offsets) and all(
        _are_equal(*pair) for pair in ((there.x, here.x), (there.y, here.y))
    )


def _are_equal(there: Tensor, here: Tensor) -> bool:
    if there is here:
        return True
    if there.shape != here.shape or there.is_floating_point() != here.is_floating_point():
        return False
    # Block by block, as the examples on a device may fill its memory.
    blocks = zip(torch.split(there, ROWS), torch.split(here, ROWS), strict=True)
    return all(torch.equal(one, other.to(one)) for one, other in blocks)
