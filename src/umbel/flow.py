"""Requests, replies, and the flows and engines between server and clients.

A round of an algorithm is a generator. It yields a `Request`, is sent `Replies`, and returns its
result; `drive` runs it on any `Engine`. The same round therefore runs in a unit test with replies
written by hand, in this process, or over a network.

Letters, everywhere: M clients in the federation, N clients asked, K clusters, P values of a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import torch
from torch import Size, Tensor

from umbel.checks import UsageError, check, kind_of
from umbel.client.work.base import Work
from umbel.reduction import Reduction, Sums
from umbel.summary import in_short

T = TypeVar("T")
R = TypeVar("R")

Use: TypeAlias = Literal["averaged", "stored", "compared"]
"""Use of replies in their round. "averaged": they enter averages, in which no client may
have too large a share. "stored": each changes its client's own model, which may be averaged later;
shares are bounded then. "compared": they only place clients, and change no model.
"""


@dataclass(frozen=True)
class Rows:
    """One row for each client, without copying equal rows: client n gets `table[index[n]]`.

    >>> import torch
    >>> from umbel.method import Rows
    >>> Rows(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1, 1])).row(2)
    tensor([2.])
    """

    table: Tensor  #: (K, ...) the different rows
    index: Tensor  #: (N,) int64, which of them each client gets

    __repr__ = in_short

    def row(self, position: int) -> Tensor:
        """The row of the client at this position of the request, as a view."""
        return self.table[int(self.index[position])]

    def take(self, positions: Tensor) -> Tensor:
        """The rows of the clients at these positions of the request: (len(positions), ...).

        Equal rows, and those that follow each other in the table, are a view of it.
        """
        index = self.index[positions]
        if len(index) > 1 and torch.equal(index, index[:1].expand(len(index))):
            return self.table[int(index[0])].expand(len(index), *self.table.shape[1:])
        at = places(index)
        return self.table[at] if isinstance(at, slice) else self.table.index_select(0, at)

    def check(self, name: str, count: int) -> None:
        """Raise `UsageError` unless there is a valid row number for each of `count` clients."""
        check_tensor(self.table, f"{name}.table")
        shape = tuple(self.index.shape) if isinstance(self.index, Tensor) else (count,)
        expected = f"({count},), a number for each client asked, as in labels[ctx.cohort]"
        check(shape == (count,), f"{name}.index: shape", shape, expected)
        check_numbers(self.index, f"{name}.index", len(self.table), "rows of its table")


def places(index: Tensor) -> slice | Tensor:
    """Numbers of rows (N,), as a slice if they follow each other."""
    first = int(index[0]) if len(index) else 0
    last = first + len(index)
    return slice(first, last) if torch.equal(index, torch.arange(first, last)) else index


def check_tensor(value: object, name: str, expected: str = "a tensor") -> None:
    """Raise `UsageError` unless the value is a tensor."""
    if not isinstance(value, Tensor):
        raise UsageError(f"{name}: {kind_of(value)} instead of {expected}")


def check_numbers(values: object, name: str, end: int, of: str) -> None:
    """Raise `UsageError` unless `values` is an int64 tensor whose values are in 0 to `end` - 1."""
    kind = str(values.dtype) if isinstance(values, Tensor) else type(values).__name__
    check(kind == "torch.int64", name, kind, "a tensor of type torch.int64")
    assert isinstance(values, Tensor)
    if not len(values):
        return
    lowest, highest = (int(edge) for edge in values.aminmax())
    outside = lowest if lowest < 0 else highest
    check(0 <= outside < end, name, outside, f"in 0 to {end - 1}, the numbers of {of}")


@dataclass(frozen=True)
class Request:
    """Clients, the work that they are to do, and the tensors they are sent; a round yields it."""

    work: Work  #: what each client computes
    clients: Tensor  #: (N,) int64, no client twice
    seeds: Sequence[int]  #: one per client: the same work on the same data gives the same reply
    shared: Mapping[str, Tensor] = field(default_factory=dict)  #: tensors that all clients get
    each: Mapping[str, Rows] = field(default_factory=dict)  #: tensors by name: client n gets row n
    optional: bool = False  #: whether the round can continue without any reply: no quorum is needed
    reduction: Reduction | None = None  #: which sums may replace the rows of a column
    number: int = 0  #: how many requests of the round came before this one; `drive` counts them
    use: Use = "averaged"  #: what becomes of the replies in this round

    __repr__ = in_short

    @property
    def shapes(self) -> dict[str, Size]:
        """The shape of each tensor that a client receives."""
        each = {name: rows.table.shape[1:] for name, rows in self.each.items()}
        return {**each, **{name: tensor.shape for name, tensor in self.shared.items()}}

    def sent_to(self, position: int) -> dict[str, Tensor]:
        """Return the tensors that the client at this position receives, by name."""
        return {**self.shared, **{name: rows.row(position) for name, rows in self.each.items()}}

    def pick(self, positions: Tensor) -> Request:
        """The request to the clients at these positions only."""
        return replace(
            self,
            clients=self.clients[positions],
            seeds=[self.seeds[n] for n in positions.tolist()],
            each={name: Rows(r.table, r.index[positions]) for name, r in self.each.items()},
        )


@dataclass(frozen=True)
class Replies:
    """The answers to a request: one row for each client that answered.

    Rows are in any order, and clients may be missing.
    """

    clients: Tensor  #: (N,) int64, who answered
    columns: Mapping[str, Tensor]  #: tensors by name, each (N, ...)
    #: client number -> why its answer is not used
    refused: Mapping[int, str] = field(default_factory=dict)
    sums: Sums | None = None  #: replaces the column that the request's reduction names
    #: client number -> why no answer came, as far as that is known
    silent: Mapping[int, str] = field(default_factory=dict)

    __repr__ = in_short

    def pick(self, positions: Tensor) -> Replies:
        """The replies at these positions, in their order."""
        columns = {name: column[positions] for name, column in self.columns.items()}
        return replace(self, clients=self.clients[positions], columns=columns)

    def in_order(self) -> Replies:
        """The replies in the order of client numbers, copied only if the order changes."""
        sorted_already = bool((self.clients.diff() > 0).all())
        return self if sorted_already else self.pick(self.clients.argsort())


STEPS = ("update", "gradient", "feature")
"""Columns of replies whose rows change models, or the means by which clients are clustered."""


def clusters_in(request: Request, replies: Replies) -> Tensor:
    """Return the cluster (N,) whose average each client enters: chosen by it, or asked for."""
    reduction, theta = request.reduction, request.each.get("theta")
    if "chosen" in replies.columns:
        return replies.columns["chosen"]
    if reduction is not None and reduction.labels is not None:
        return reduction.labels[replies.clients]
    if theta is None:
        return torch.zeros_like(replies.clients)
    # Methods average over clients that are sent the same model.
    asked, places = request.clients.sort()
    return theta.index[places[torch.searchsorted(asked, replies.clients)]]


Flow: TypeAlias = Generator[Request, Replies, T]
"""A generator for work at the server: it yields requests to clients, and returns a T."""

Steps: TypeAlias = Generator[Request | T, Replies, R]
"""A flow that also yields results on its way, and returns an R."""


@runtime_checkable
class Engine(Protocol):
    """Does clients' work: in a loop, in one batched tensor program, or on other machines.

    An engine whose clients are on other machines has the attribute `elsewhere = True`. Each request
    then goes to them in one exchange, even if the rows could be requested in blocks and summed, and
    the clients clip and noise their updates themselves (see `Privacy`). With any other engine the
    run does so.
    """

    def send(self, request: Request) -> Replies:
        """Have the clients do the work of the request, and return their replies."""
        ...


def are_elsewhere(clients: object) -> bool:
    """Whether an engine's clients are on other machines, by its attribute `elsewhere`."""
    return bool(getattr(clients, "elsewhere", False))


def as_flow(thing: Flow[T], function: str) -> Flow[T]:
    """Return `thing`, the result of `function`. Raises `UsageError` unless it is a generator."""
    expected = "a generator: ask by `yield from`, and end with `return`"
    check(isinstance(thing, Generator), function, type(thing).__name__, expected)
    return thing


class Layer(ABC):
    """An engine that passes requests on to the one within, and may change requests and replies."""

    engine: Engine  # the one within

    @abstractmethod
    def ask(self, request: Request) -> Flow[Replies]:
        """Answer a request, by requests to the innermost engine."""

    def send(self, request: Request) -> Replies:
        """Have the innermost engine answer."""
        return returned(self.ask(request), innermost(self).send)


def innermost(engine: Engine) -> Engine:
    """The engine within all layers."""
    return innermost(engine.engine) if isinstance(engine, Layer) else engine


def ask(engine: Engine, request: Request) -> Flow[Replies]:
    """Ask an engine: the innermost by `yield`."""
    if isinstance(engine, Layer):
        return (yield from engine.ask(request))
    return (yield request)


def relay(flow: Flow[T], ask: Callable[[Request], Flow[Replies]]) -> Flow[T]:
    """Return the result of a flow, with each of its requests answered by `ask`.

    So a method around another one changes requests on their way out, and replies on their way back.
    """
    try:
        request = next(flow)
        while True:
            request = flow.send((yield from ask(request)))
    except StopIteration as stop:
        result: T = stop.value
        return result


def drive(flow: Flow[T], engine: Engine) -> T:
    """Run a flow to its end, with `engine` answering its requests.

    Replies are sorted by client number, so that floating-point sums do not depend on who answered
    first. Raises `UsageError` if the flow is not a generator or yields anything but a `Request`.
    """
    return returned(through(flow, engine), innermost(engine).send)


def through(flow: Flow[T], engine: Engine) -> Flow[T]:
    """Return what `drive` does, as a flow of requests to the innermost engine."""
    as_flow(flow, "round")
    try:
        request = _asked(next(flow))
        # The number of a request in its round is counted here, so that no method has to count.
        while True:
            replies = yield from ask(engine, request)
            request = _asked(flow.send(replies.in_order()), request.number + 1)
    except StopIteration as stop:
        result: T = stop.value
        return result


def returned(flow: Flow[T], send: Callable[[Request], Replies]) -> T:
    """Return the result of a flow, whose requests `send` answers."""
    try:
        next(answered(flow, send))
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a flow yields requests alone")


def answered(steps: Steps[T, R], send: Callable[[Request], Replies]) -> Generator[T, None, R]:
    """Yield the results among what `steps` yields, while `send` answers the requests.

    Errors of `send` are raised where the request was yielded.
    """
    try:
        step = next(steps)
        while True:
            if not isinstance(step, Request):
                yield step
                step = next(steps)
                continue
            try:
                replies = send(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(replies)
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        steps.close()


def _asked(request: Request, number: int = 0) -> Request:
    """Number the request that a round has yielded. Raises `UsageError` for anything else."""
    expected = "a request: write `yield from` before train(...) and its like"
    check(isinstance(request, Request), "what round yields", type(request).__name__, expected)
    return replace(request, number=number) if number else request
