"""A process of a Ray cluster: it answers chunks of requests for the clients of its machine."""

from __future__ import annotations

import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from ray import cloudpickle
from ray.exceptions import RayError
from torch import nn

from umbel.checks import UsageError, first_line
from umbel.client.constants import bits
from umbel.client.kernel_choice import Way
from umbel.client.net import Net
from umbel.client.objectives import Objective
from umbel.client.work import Work
from umbel.cores import roam
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.engines.alignment import tensor_of
from umbel.engines.allocation import keep_freed_memory
from umbel.engines.devices import enough_memory
from umbel.engines.precision import check_processor
from umbel.engines.sequential import Sequential
from umbel.engines.storage import Storage, chosen
from umbel.engines.vectorised import Vectorised
from umbel.flow import Request, Rows
from umbel.summary import in_short
from umbel.version import versions

T = TypeVar("T")

Arrays: TypeAlias = "tuple[NDArray[Any], NDArray[Any]]"
"""One client's inputs and targets."""

Cut: TypeAlias = "tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]"
"""x, y and offsets of some clients."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that an actor needs to make its engine; it builds the network again."""

    build: Callable[[], nn.Module]
    objective: Objective
    trained: tuple[str, ...] | None
    moving: tuple[str, ...]
    way: Way
    # bytes of the frozen tensors, which all actors of a machine read in one place
    frozen: Mapping[str, NDArray[np.uint8]]
    default_dtype: torch.dtype  # of PyTorch in this process, as `matmul`
    matmul: str
    kind: type[Sequential] | type[Vectorised]
    example: Federation  # of one client, for the engine to begin with

    __repr__ = in_short

    @classmethod
    def of(cls, engine: Sequential | Vectorised, federation: Federation) -> Recipe:
        """Return the recipe for an engine that computes as this one."""
        net = engine.net
        return cls(
            build=net.build,
            objective=net.objective,
            trained=net.trained,
            moving=net.moving,
            way=net.way,
            frozen={name: bits(value).numpy() for name, value in net.modules.frozen.items()},
            default_dtype=torch.get_default_dtype(),
            matmul=torch.get_float32_matmul_precision(),
            kind=type(engine),
            example=federation.pick([0]),
        )

    def put(self) -> Any:
        """The recipe in Ray's store. Raises `UsageError` for one that can't be pickled."""
        try:
            return ray.put(self)
        except RayError:
            raise
        except Exception as error:  # of whatever a user's builder or objective holds
            what = "objective" if _unsendable(self.objective) else "network's builder"
            why = first_line(error.__cause__ or error)
            raise UsageError(f"the {what} can't be sent to actors: {why}") from None

    def make(self) -> Sequential | Vectorised:
        """An engine with hardly any clients, in a process that is the actor's alone.

        Raises `UsageError` if the processor here has no products in the precision of the run.
        """
        check_processor(self.way.precision, f"the processor of {socket.gethostname()}")
        torch.set_default_dtype(self.default_dtype)
        torch.set_float32_matmul_precision(self.matmul)
        built = Net(self.build, self.objective, trained=self.trained, moving=self.moving)
        built.modules.adopt({name: tensor_of(array) for name, array in self.frozen.items()})
        return self.kind(built.computing(self.way), self.example)


@dataclass(frozen=True)
class Slice:
    """Some clients that follow each other, as a machine has them in memory that its actors share.

    Arrays are read where they are: only what PyTorch joins for a chunk is copied.
    """

    first: int
    train: Cut
    test: Cut
    validation: Cut | None = None

    __repr__ = in_short

    @classmethod
    def of(cls, storage: Storage, clients: range) -> Slice:
        """These clients of a storage."""
        validation = storage.validation
        return cls(
            clients.start,
            _cut(storage.train, clients),
            _cut(storage.test, clients),
            None if validation is None else _cut(validation, clients),
        )

    def client(self, work: Work, client: int) -> Arrays:
        """One client's examples for this work."""
        x, y, offsets = chosen(work, train=self.train, test=self.test, validation=self.validation)
        start, end = offsets[client - self.first : client - self.first + 2]
        return x[start:end], y[start:end]


@dataclass(frozen=True)
class Sent:
    """A request without tensors: those are arrays, which Ray keeps once a machine."""

    work: Work
    clients: NDArray[np.int64]
    seeds: Sequence[int]
    shared: Mapping[str, NDArray[Any]]
    each: Mapping[str, tuple[NDArray[Any], NDArray[np.int64]]]

    __repr__ = in_short

    @classmethod
    def of(cls, request: Request) -> Sent:
        """Return the request as arrays, without the parts that only the server uses."""
        shared = {name: tensor.numpy() for name, tensor in request.shared.items()}
        each = {name: (r.table.numpy(), r.index.numpy()) for name, r in request.each.items()}
        return cls(request.work, request.clients.numpy(), request.seeds, shared, each)

    def request(self) -> Request:
        """Return the request that was sent; its tensors must not be written to."""
        shared = {name: tensor_of(array) for name, array in self.shared.items()}
        each = {n: Rows(tensor_of(t), tensor_of(index)) for n, (t, index) in self.each.items()}
        return Request(self.work, tensor_of(self.clients), self.seeds, shared, each)


@dataclass(frozen=True)
class FailedTask:
    """An error of the work or the network, which is an answer: Ray's own are of lost actors."""

    said: str  # with its name and where it was raised
    pickled: bytes | None  # None where it can't be sent as it is

    @classmethod
    def of(cls, error: BaseException) -> FailedTask:
        """Describe an error, and pickle it if that is possible."""
        said = "".join(traceback.format_exception(error)).strip()
        try:
            pickled = cloudpickle.dumps(error)
            cloudpickle.loads(pickled)
        except Exception:  # your own exception may fail in any way when it is copied
            pickled = None
        return cls(said, pickled)

    def error(self) -> BaseException:
        """Return the error, or if it can't be unpickled, one with its text."""
        if self.pickled is not None:
            with suppress(Exception):  # it may be of a module that only the actor has
                error: BaseException = cloudpickle.loads(self.pickled)
                return error
        return RuntimeError(f"in an actor of Ray:\n{self.said}")


@dataclass(frozen=True)
class ActorPlace:
    """The place of an actor, its versions, and the error if it could not make its engine."""

    machine: str  # as Ray names it
    host: str
    versions: Mapping[str, str]
    failed: FailedTask | None


def _or_failed(do: Callable[[], T]) -> T | FailedTask:
    """Return the result, or a `FailedTask` for an error that is not Ray's own."""
    try:
        return do()
    except RayError:
        raise
    except (Exception, SystemExit) as error:
        return FailedTask.of(error)


class Actor:
    """Holds an engine, and looks for clients in the slices of its machine.

    A recipe and a request come as references in lists, which Ray does not follow by itself. The
    recipe comes with every call: the first makes the engine.
    """

    def __init__(self, places: Sequence[str] = ()) -> None:
        """Look for modules in these places, too: those of the process that has the run."""
        sys.path.extend(place for place in places if place not in sys.path)
        roam()
        torch.set_num_threads(1)
        self.engine: Sequential | Vectorised | None = None
        self.slices: dict[int, Slice] = {}
        self.latest: tuple[int, Request] | None = None

    def machine(self, recipe: Sequence[Any]) -> ActorPlace:
        """Make the engine, and return the place of this actor."""
        made = _or_failed(partial(self._made, recipe))
        machine, host = str(ray.get_runtime_context().get_node_id()), socket.gethostname()
        return ActorPlace(machine, host, versions(), made if isinstance(made, FailedTask) else None)

    def answer(
        self, recipe: Sequence[Any], *asked: Any
    ) -> list[dict[str, NDArray[Any]]] | FailedTask:
        """Return the result of `rows`, or the error."""
        return _or_failed(lambda: self.rows(self._made(recipe), *asked))

    def _made(self, recipe: Sequence[Any]) -> Sequential | Vectorised:
        keep_freed_memory()
        self.engine = self.engine or ray.get(recipe[0]).make()
        return self.engine

    def rows(
        self,
        engine: Sequential | Vectorised,
        number: int,
        sent: Sequence[Any],
        chunks: Sequence[NDArray[np.int64]],
        slices: Mapping[int, tuple[int, Any]],
        others: Mapping[int, Arrays],
    ) -> list[dict[str, NDArray[Any]]]:
        """The rows for each chunk of the request of this number, which `sent` refers to.

        `slices` says in which slice a client is, and where that is; `others` are examples of
        clients that are not this machine's.
        """
        if self.latest is None or self.latest[0] != number:
            self.latest = number, ray.get(sent[0]).request()
        request = self.latest[1]
        rows = []
        for chunk in chunks:
            part = request.pick(torch.from_numpy(chunk.copy()))
            arrays = [
                self._slice(*slices[client]).client(request.work, client)
                if client in slices
                else others[client]
                for client in part.clients.tolist()
            ]
            split = _joined(arrays)
            # An actor holds no examples of its own: it answers for those that were sent.
            engine.storage = Storage(split, split, split)
            part = replace(part, clients=torch.arange(len(arrays)))
            with enough_memory(partial(engine.too_large, part)):
                reply = engine.answer(part, torch.arange(len(arrays)))
            rows.append({name: column.numpy() for name, column in reply.items()})
        return rows

    def _slice(self, number: int, where: Any) -> Slice:
        if number not in self.slices:
            self.slices[number] = ray.get(where)
        return self.slices[number]


def _cut(split: Split, clients: range) -> Cut:
    offsets = split.offsets[clients.start : clients.stop + 1]
    rows = slice(int(offsets[0]), int(offsets[-1]))
    return split.x[rows].numpy(), split.y[rows].numpy(), offsets - offsets[0]


def _joined(arrays: Sequence[Arrays]) -> Split:
    pairs = [(tensor_of(x), tensor_of(y)) for x, y in arrays]
    offsets = np.cumsum([0, *(len(x) for x, _ in pairs)]).astype(np.int64)
    if len(pairs) == 1:
        return Split(*pairs[0], offsets)
    return Split(torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs]), offsets)


def _unsendable(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return True
    return False
