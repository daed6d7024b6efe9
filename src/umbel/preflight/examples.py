"""Checks that the network takes the examples of every client, by running it on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from umbel.checks import UsageError, first_line
from umbel.client.batches import SLICE
from umbel.client.constants import twin
from umbel.client.kernels.general import one_tensor
from umbel.client.net import Net
from umbel.client.seeding import drawing_from
from umbel.client.work import Gradient, PersonalTraining, Work
from umbel.data.federation import Federation
from umbel.data.splits import Split, typed
from umbel.preflight.sample import sample
from umbel.preflight.torch_errors import ALONE, FAILURES, explained, in_a_line

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
    """Return True for `table[indices]` with indices in a tensor."""
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


KEEP_THE_BATCH = "let forward keep the first dimension, as x.squeeze(-1) does, unlike x.squeeze()"


@dataclass(frozen=True)
class Trouble:
    """The reason why a network can't process a single example, as parts of a message."""

    why: str
    otherwise: str  # what to change in the network


def trained_alone(net: Net, two: Tensor) -> Trouble | None:
    """The trouble in training, found with two inputs (2, ...) and the first of them; or None."""

    def passed(x: Tensor) -> Tensor:
        module = twin(net.modules.training, net.layout)
        return one_tensor(module(x.detach().clone()))

    normalised = Trouble("batch normalisation needs two in a mini-batch", "use group normalisation")
    return _trouble(passed, two, normalised)


def evaluated_alone(net: Net, two: Tensor) -> Trouble | None:
    """The trouble in an evaluation, found in the same way."""
    normalised = Trouble(
        "batch normalisation without running statistics needs two",
        "set track_running_stats=True, or use group normalisation",
    )
    return _trouble(lambda x: net.outputs(net.new(seed=0), x), two, normalised)


def _trouble(
    passed: Callable[[Tensor], Tensor], two: Tensor, normalised: Trouble
) -> Trouble | None:
    """Compare the outputs for one example with those for two, which `check_fit` has looked at."""
    with torch.no_grad(), drawing_from(seed=0):
        expected = (1, *passed(two).shape[1:])
        try:
            found = tuple(passed(two[:1]).shape)
        except FAILURES as error:
            if ALONE in str(error):
                return normalised
            return Trouble(f"the network fails ({in_a_line(error, named=True)})", KEEP_THE_BATCH)
    if found == expected:
        return None
    return Trouble(f"the network's outputs then have shape {found}, not {expected}", KEEP_THE_BATCH)


def check_batches(net: Net, federation: Federation, settings: Any) -> None:
    """Raise `UsageError` if the network would get a mini-batch of one example and can't process it.

    That may be in training, or in an evaluation. `settings` are those of the method, or
    what clients do to fine-tune: the mini-batches are those of the works in them.
    """
    two = sample(net, federation).x
    if (trouble := evaluated_alone(net, two)) is not None:
        check_slices(trouble, federation, settings)
    if (trouble := trained_alone(net, two)) is None:
        return
    sizes = federation.train.sizes
    for work in _works_in(settings):
        for size in np.unique(sizes[sizes > 0]):
            plan = work.batching.plan(int(size), 0)
            alone = size == 1 and isinstance(work, Gradient)  # of all examples, without a plan
            if alone or ((plan >= 0).sum(1) == 1).any():
                name = federation.names[int(np.flatnonzero(sizes == size)[0])]
                if size == 1:
                    raise UsageError(
                        f"client {name}: it has one example, and {trouble.why}: leave the client "
                        f"out, or {trouble.otherwise}"
                    )
                raise UsageError(
                    f"client {name}: its {size} examples leave a mini-batch of one, and "
                    f"{trouble.why}: set {_way_out(settings)}, or {trouble.otherwise}"
                )


def _way_out(settings: Any) -> str:
    """The settings that say which mini-batches there are."""
    if isinstance(settings, PersonalTraining):
        return "another batch_size in [personal]"
    return "drop_last = true or another batch_size in the method's local training"


def _works_in(settings: Any) -> Iterator[Work]:
    """The works among the fields of a method, at any depth, that it has clients do."""
    send = getattr(settings, "send", None)
    unused = "local" if send == "gradient" else "gradient" if send is not None else ""
    for field in fields(settings) if is_dataclass(settings) else ():
        value = getattr(settings, field.name)
        if field.name == unused:
            continue
        if isinstance(value, Work):
            yield value
        yield from _works_in(value)


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
    """Return True if a method, or one within it, may evaluate training examples."""
    traits = getattr(settings, "traits", None)
    if traits is not None and not settings.has(traits.only_trains):
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
