"""Many clients in one batched tensor program."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from umbel.checks import UsageError, check_memory
from umbel.client.batches import SLICE, Plan, Shard, Step, Steps, in_order
from umbel.client.net import Net
from umbel.client.process_locks import plain_attention
from umbel.client.work import DURING, Work
from umbel.client.work.base import Batching
from umbel.client.work.local_training import BYTES_OF_A_PLACE
from umbel.data.federation import Federation
from umbel.engines.columns import in_chunks
from umbel.engines.devices import enough_memory, repeatable
from umbel.engines.replies.validation import reply_of
from umbel.engines.sequential import answer_one
from umbel.engines.shortage import shortage
from umbel.engines.storage import store
from umbel.flow import Replies, Request
from umbel.summary import in_short

PADDED_ANYHOW = 2**16
"""Chunks with at most this many places may be padded without limit: the cost is negligible."""

SMALL_MODEL = 50_000
"""Values of a model, up to which several runs may be computed together."""

ROWS = 16
"""Chunks of small models hold a multiple of this many clients, or a power of two below it.

A client's row is then aligned in memory in the same way whether or not runs are computed together.
"""

CACHE_MB, MEMORY_MB = 48, 512
"""The working set of a chunk must fit in memory, and should stay in a CPU's cache during training,
which goes through the same models again and again."""

IN_ORDER = Batching(lambda num_examples, _: in_order(num_examples), draws=False)
"""All examples, in slices."""

SHARE = 1 / 4
"""Largest share of a GPU's total memory for a chunk.

The free memory is not used as the measure: it may differ after a restart, and chunks of another
size round differently.
"""


class Vectorised:
    """An engine that runs the same work for many clients at once, through `torch.func.vmap`.

    Clients of unequal size are padded and masked, which leaves the maths of each untouched. Chunks
    are as large as `memory_mb` allows, and hold clients of similar size, so that at most half of a
    large chunk is padding. The module must not mix the examples of a batch; `EngineSettings` tries
    this, and chooses `Sequential` for modules that do.
    """

    def __init__(
        self,
        net: Net,
        federation: Federation,
        device: torch.device | str = "cpu",
        memory_mb: float | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.net = net.to(self.device)
        self.storage = store(federation, net.dtype, self.device)
        self.memory_mb = memory_mb
        modules, one = self.net.modules, self.storage.train.x[:1]
        self.values_per_example = modules.values_per_example(one)
        if self.device.type == "cuda":  # where the bound is one of memory, not of a cache
            kept = modules.saved_per_example(one)
            self.values_per_example = max(self.values_per_example, kept)

    @cached_property
    def net_alone(self) -> Net:
        """The network for work that clients do one after another."""
        return self.net.one_by_one()

    def send(self, request: Request) -> Replies:
        with repeatable(self.device), enough_memory(lambda: self.too_large(request)):
            return in_chunks(request, self.chunks(request), self.answer)

    def too_large(self, request: Request, processes: int = 1) -> str:
        """Return the error of a request for which memory is too short."""
        at_once = max((len(chunk) for chunk in self.chunks(request)), default=1)
        kept = self.values_per_example
        return shortage(request, self.net, self.storage, kept, at_once, processes)

    def chunks(self, request: Request) -> Iterator[Tensor]:
        """Positions in the request, clients of similar size together."""
        positions = self.storage.by_size(request)
        if not len(positions):
            return
        if request.work.alone:
            _ = self.net_alone  # made once, before workers are forked that would each make it
            yield from positions[:, None]
            return
        # In falling order: clients of similar size are neighbours, and the largest comes first.
        sizes = self.storage.split(request).sizes[request.clients[positions].numpy()]
        places = _places(request, sizes)
        said = f"a client of {sizes[0]:,} examples has {places[0]:,} in mini-batches"
        check_memory(int(places[0]) * BYTES_OF_A_PLACE, f"local.epochs or local.steps: {said}")
        first = 0
        while first < len(positions):
            most = self.chunk_size(request, int(sizes[first]), int(places[first]))
            # A client alone in its chunk would be computed differently.
            if most >= ROWS and len(positions) - first == most + 1:
                most += 1
            count = _tight(places[first : first + most])
            yield positions[first : first + count]
            first += count

    def chunk_size(self, request: Request, max_examples: int, max_places: int) -> int:
        """Return the number of clients whose working set is within its bound, at least 1."""
        steps, batch_width = request.work.batching.size(max_examples)
        memory = default = memory_of(self.device)
        if self.device.type == "cpu" and steps > 1:
            default = CACHE_MB
        footprint = request.work.footprint(request.shapes)
        # Received model, trained model, gradient and the step between them; and what one pass
        # forward and back keeps.
        values = 4 * self.net.layout.num_values * footprint.models
        examples = footprint.examples(max_examples, batch_width)
        values += 2 * min(examples, self.net.way.micro_batch or examples) * self.values_per_example
        bound = (self.memory_mb or default) * 2**20
        # Clients whose working sets together are within the bound.
        fitting = int(bound / (values * self.net.dtype.itemsize))
        # Steps go through the plans once, so that these need not stay in a cache.
        plans = int((self.memory_mb or memory) * 2**20 / (max(1, max_places) * BYTES_OF_A_PLACE))
        most = max(1, min(fitting, plans))
        if self.net.layout.num_values <= SMALL_MODEL:
            most = most - most % ROWS if most >= ROWS else 1 << (most.bit_length() - 1)
        return min(most, len(request.clients))

    def answer(self, request: Request, positions: Tensor) -> dict[str, Tensor]:
        """Compute the replies of the clients at these positions together."""
        if request.work.alone:
            return answer_one(self.net_alone, self.storage, request, positions)
        work, split = request.work, self.storage.split(request)
        clients = request.clients[positions].numpy()
        sizes = split.sizes[clients]
        # Row of each client's first example in the storage.
        starts = np.minimum(split.offsets[clients], len(split.x) - 1)  # the last may have none
        seeds: Sequence[int] = range(len(positions))  # unless the plans depend on them
        if work.batching.draws:
            seeds = [request.seeds[n] for n in positions.tolist()]
        # Mini-batches (c, S, b) of the work, and all examples in order, each padded to one shape.
        planned = _Stack.of(work.batching, sizes, seeds, starts, self.device)
        ordered = _Stack.of(IN_ORDER, sizes, seeds, starts, self.device)
        shared = {name: tensor.to(self.device) for name, tensor in request.shared.items()}
        own = {}
        for name, rows in request.each.items():
            if name == DURING:
                continue  # `split` has only the examples of these steps
            # One model for the whole chunk is not repeated: PyTorch then computes one large
            # product.
            if torch.equal(rows.index[positions], rows.index[positions[:1]].expand(len(positions))):
                shared[name] = rows.row(int(positions[0])).to(self.device)
            else:
                own[name] = rows.take(positions).to(self.device)

        def one(
            plan: Tensor, order: Tensor, size: Tensor, mine: dict[str, Tensor]
        ) -> dict[str, Tensor]:
            shard = Shard(
                split.x,
                split.y,
                size,
                Steps(plan, planned.steps(plan)),
                ordered.steps(order),
            )
            return reply_of(work, self.net, shard, {**shared, **mine})

        counts = torch.from_numpy(sizes).to(self.device)
        with _together(work), plain_attention(), warnings.catch_warnings():
            # vmap warns of what it has no fast way for.
            warnings.filterwarnings("ignore", "There is a performance drop")
            reply = vmap(one)(planned.rows, ordered.rows, counts, own)
        return {name: column.detach() for name, column in reply.items()}


@contextmanager
def _together(work: Work) -> Iterator[None]:
    """Turn errors of vmap into a `UsageError`: the network was tried before, the work was not.

    It may have been done before, while all clients had one model.
    """
    try:
        yield
    except RuntimeError as error:
        said = str(error)
        if not said.startswith(("vmap: ", "Cannot access data pointer")):
            raise
        cause = said.removeprefix("vmap: ").partition("\n")[0].partition(". ")[0].rstrip(".")
        while work.inner is not None and type(work).__module__.startswith("umbel."):
            work = work.inner  # an own work within one of umbel's
        raise UsageError(
            f"{type(work).__name__} can't be done by many clients at once ({cause}): it must "
            "not branch on values, read them from tensors or draw random numbers; choose by "
            "torch.where, or write alone = True in its class, for clients one after another"
        ) from error


def memory_of(device: torch.device) -> float:
    """The working set that a chunk has by default, in MiB."""
    if device.type != "cuda":
        return MEMORY_MB
    return torch.cuda.get_device_properties(device).total_memory / 2**20 * SHARE


def _places(request: Request, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of places in each client's plans (C,), without making them all."""
    batching, largest = request.work.batching, int(sizes[0])
    planned = {largest: prod(batching.size(largest))}
    if batching.shape is not None:
        planned = {size: prod(batching.shape(size)) for size in np.unique(sizes).tolist()}
    # Where the shape is known only with the plan, all are taken to be as long as the longest.
    most = [planned.get(size, planned[largest]) for size in sizes.tolist()]
    return np.array(most) + -(-sizes // SLICE) * np.minimum(sizes, SLICE)


def _tight(places: NDArray[np.int64]) -> int:
    """Return how many of these clients, in falling order of places, fit one chunk.

    A chunk ends before a client that has less than half the places of the first, so that all chunks
    together take at most twice the steps of the largest client.
    """
    # n clients padded to the first have n places_0; at least half of these must be used.
    table = np.arange(1, len(places) + 1) * places[0]
    fine = table <= np.maximum(2 * places.cumsum(), PADDED_ANYHOW)
    fine[0] = True
    return len(places) if fine.all() else int(fine.argmin())


@dataclass(frozen=True)
class _Stack:
    """The plans of a chunk of clients, padded to one shape."""

    rows: Tensor  # (c, S, b) rows of the storage, negative for padding
    padded: NDArray[np.bool_]  # (S,) whether some client's batch has padding
    empty: NDArray[np.bool_]  # (S,) whether some client has no batch at all

    __repr__ = in_short

    @classmethod
    def of(
        cls,
        batching: Batching,
        sizes: NDArray[np.int64],
        seeds: Sequence[int],
        starts: NDArray[np.int64],
        device: torch.device,
    ) -> _Stack:
        """Stack the plans of clients of these sizes, whose examples begin at `starts`."""
        plans: list[Plan] = []
        # From each change of the size to the next.
        edges = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(sizes)]
        for begin, end in pairwise(edges):
            plans += batching.plans(int(sizes[begin]), seeds[begin:end])
        steps, width = np.max([each.shape[1:] for each in plans], axis=0)
        # -1 is padding: below, it becomes a row of the client's own, marked by its sign.
        positions = np.full((len(sizes), steps, width), -1, dtype=np.int64)
        ends = accumulate(map(len, plans))
        for end, each in zip(ends, plans, strict=True):
            positions[end - len(each) : end, : each.shape[1], : each.shape[2]] = each
        first = starts[:, None, None]
        # Padding repeats the client's own examples, as another client's might contain NaN.
        rows = np.where(positions >= 0, positions + first, ~first)
        missing = positions < 0
        return cls(
            torch.from_numpy(rows).to(device),
            np.asarray(missing.any(axis=(0, 2))),
            np.asarray(missing.all(axis=2).any(axis=0)),
        )

    def steps(self, rows: Tensor) -> list[Step]:
        """The batches of one client, given its rows (S, b)."""
        flags = zip(self.padded.tolist(), self.empty.tolist(), strict=True)
        return [Step(rows[s], padded, empty) for s, (padded, empty) in enumerate(flags)]
