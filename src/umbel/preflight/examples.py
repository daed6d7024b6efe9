"""Whether the network takes the examples of every client, found out by running it on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from umbel.checks import first_line
from umbel.client.batches import SLICE
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.data.splits import Split, typed
from umbel.preflight.torch_errors import FAILURES, explained

log = logging.getLogger(__name__)

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)

LOOKUPS = frozenset(
    {
        *(functional.embedding, functional.embedding_bag, functional.one_hot, torch.embedding),
        *(torch.gather, Tensor.gather, torch.index_select, Tensor.index_select),
    }
)
"""Functions that take values by indices, which may be out of range."""

AT_ONCE = 2**24
"""Largest number of values that a function gives for the examples that are tried at once."""


def check_examples(net: Net, theta: Tensor, federation: Federation, x: Tensor) -> None:
    """Raise `UsageError` that names the client if the network does not accept one of its examples.

    The embeddings of batched clients share memory: an index out of range would silently read a row
    of another client's table. If a pass of `x`, a few inputs, shows that the network looks up
    values by indices, all examples are tried. Otherwise only examples with the smallest or largest
    whole number at some place of the input are tried. As networks may cut off what is padding in a
    whole mini-batch, a warning names the client whose shortest sequence can't be in one alone.
    """
    with torch.no_grad(), _Watch() as watch:
        net.outputs(theta, x)
    looks_up = watch.looks_up or any(isinstance(part, EMBEDDINGS) for part in net.parts)
    at_once = min(SLICE, 1 + AT_ONCE * len(x) // watch.largest)
    for split in federation.splits:
        rows = torch.arange(len(split.x)) if looks_up else _extremes(split.x)
        for some in torch.split(rows, at_once) if len(rows) else ():
            try:
                _pass(net, theta, split, some)
            except FAILURES:
                _blame(net, theta, federation, split, some)
        if looks_up:
            _warn_of_shortest(net, theta, federation, split)


def _warn_of_shortest(net: Net, theta: Tensor, federation: Federation, split: Split) -> None:
    """Warn unless the network accepts a mini-batch of only the shortest sequence.

    That is the one with the most places at its end that are all negative or all the same. Whether
    it is ever alone depends on mini-batches, which only the method knows.
    """
    if split.x.dim() != 2 or split.x.is_floating_point() or not split.x.numel():
        return
    ends = torch.cat([_length_of_end(some) for some in torch.split(split.x, SLICE)])
    shortest = ends.argmax().reshape(1)
    try:
        _pass(net, theta, split, shortest)
    except FAILURES as error:
        client = int(np.searchsorted(split.offsets, int(shortest), side="right")) - 1
        said = "client %s: a mini-batch of its shortest example alone would end the run: %s"
        log.warning(said, federation.names[client], first_line(error))


def _length_of_end(x: Tensor) -> Tensor:
    """(n,) at how many places at their end sequences (n, L) are all negative or all the same."""
    last = x[:, -1:]
    alike = (x == last) | ((x < 0) & (last < 0))
    return alike.flip(1).cumprod(1).sum(1)


class _Watch(TorchFunctionMode):
    """Notes whether values are looked up by indices, and the size of the largest result."""

    def __init__(self) -> None:
        super().__init__()
        self.looks_up, self.largest = False, 1

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self.looks_up = self.looks_up or func in LOOKUPS or _by_tensor(func, args)
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.largest = max(self.largest, result.numel())
        return result


def _by_tensor(func: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether this is `table[indices]`, where the indices are a tensor."""
    if func is not Tensor.__getitem__:
        return False
    places = args[1] if isinstance(args[1], tuple) else (args[1],)
    return any(isinstance(place, Tensor) for place in places)


def _extremes(x: Tensor) -> Tensor:
    """The rows with the smallest and the largest whole number at each place."""
    if x.is_floating_point() or not len(x):
        return torch.zeros(0, dtype=torch.long)
    flat = x.reshape(len(x), -1)
    return torch.from_numpy(np.unique(torch.cat([flat.argmin(0), flat.argmax(0)]).numpy()))


def _pass(net: Net, theta: Tensor, split: Split, rows: Tensor) -> None:
    """Evaluate these examples; one alone stands in twice, as batch normalisation may need two."""
    rows = rows.repeat(2) if len(rows) == 1 else rows
    with torch.no_grad():
        net.outputs(theta, typed(split.x[rows], net.dtype))


def _blame(net: Net, theta: Tensor, federation: Federation, split: Split, rows: Tensor) -> None:
    """Raise `UsageError` with the client of the first of these examples that the network refuses.

    If each example is accepted alone, all examples of each client are tried together. If these are
    accepted, too, only a mix of clients was refused, which never occurs in a run.
    """
    clients = np.searchsorted(split.offsets, rows.numpy(), side="right") - 1
    for client in np.unique(clients).tolist():
        own = rows[torch.from_numpy(clients == client)]
        for some in (*torch.split(own, 1), own):
            with explained(split.x[some], f"client {federation.names[client]}: "):
                _pass(net, theta, split, some)
