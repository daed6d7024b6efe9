"""The context of a round, and how a round asks its cohort."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TypeAlias, get_args

import torch
from torch import Tensor

from umbel.checks import UsageError, check, kind_of, with_article
from umbel.client.layout import Layout
from umbel.client.work import DURING, Work
from umbel.client.work.base import promised
from umbel.flow import Request, Rows, Use, check_numbers, check_tensor
from umbel.reduction import Reduction
from umbel.seeds import Stream, client_seeds, seed_of
from umbel.summary import in_short


@dataclass
class Stopwatch:
    """Counts the seconds that blocks of code take, for the records of a run."""

    seconds: float = 0.0
    _since: float = field(default=0.0, init=False, repr=False)
    _depth: int = field(default=0, init=False, repr=False)  # nested blocks count once

    def __enter__(self) -> None:
        self._since = perf_counter() if self._depth == 0 else self._since
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += perf_counter() - self._since


Sample: TypeAlias = Callable[[int], Tensor]
"""Takes the number of clients M, and returns the positions (N,) of those that evidence covers."""


def all_places(count: int) -> Tensor:
    """(count,) the positions of all clients."""
    return torch.arange(count)


@dataclass(frozen=True, kw_only=True)
class Context:
    """All that a round may know in addition to its state, and `request`, which asks the cohort.

    >>> import torch
    >>> from umbel.method import Context, Layout
    >>> ctx = Context(round=0, num_rounds=9, cohort=torch.tensor([0, 2]), num_clients=3, seed=0,
    ...               layout=Layout((), ()))
    >>> ctx.everyone.cohort
    tensor([0, 1, 2])
    """

    round: int  #: counted from 0
    num_rounds: int  #: total number of rounds of the run, as in `Setup`
    cohort: Tensor  #: (N,) the clients asked to take part, in increasing order
    num_clients: int  #: M, the clients of the federation
    seed: int  #: seed of the run
    layout: Layout  #: the names and shapes of a model's values
    input_shape: tuple[int, ...] = ()  #: shape of the input of one example
    num_outputs: int = 0  #: number of outputs of a model: for classification, the number of classes
    optional: bool = False  #: whether the round can continue if no client of the cohort replies
    #: step of time, counted from 0; 0 in runs without time
    step: int = field(default=0, repr=False)
    #: whether this is the first round of its step
    begins: bool = field(default=False, repr=False)
    num_steps: int = field(default=1, repr=False)  #: number of steps of time
    #: share of each client's examples of each step (M, T) that its work is to see; None: those that
    #: the run keeps
    shares: Tensor | None = field(default=None, repr=False)
    sample: Sample = all_places  #: selects the clients that evidence covers; by default all
    #: what becomes of replies in this round: they are "averaged", "stored" for averages of later
    #: rounds, or only "compared", to place clients
    use: Use = field(default="averaged", repr=False)
    #: largest share of the weight of one client in an average; engines enforce it in replies, but a
    #: method must enforce it in clusters that it finds from the replies
    max_share: float = field(default=1.0, repr=False)
    #: longest step of a client, as a multiple of the median; None: no bound; enforced as
    #: `max_share`
    max_norm_ratio: float | None = field(default=None, repr=False)
    #: measures the seconds of a `with ctx.clustering:` block, in which a round finds clusters
    clustering: Stopwatch = field(default_factory=Stopwatch, repr=False, compare=False)

    __repr__ = in_short

    @property
    def everyone(self) -> Context:
        """The context of the round with all clients asked, for the same `use`."""
        return self.asking(torch.arange(self.num_clients))

    def asking(self, clients: Tensor, optional: bool = False, use: Use | None = None) -> Context:
        """Return the context of the round with these clients asked, for this use.

        `use` None keeps that of this context. Raises `UsageError` for numbers that are no clients,
        and for a client named twice.
        """
        check_numbers(clients, "clients", self.num_clients, "clients")
        cohort = clients.sort().values
        # Sorted, a client that is named twice stands beside itself.
        twice = cohort[1:][cohort.diff() == 0]
        check(not len(twice), "clients", f"{twice[:1].tolist()} twice", "unique: name each once")
        return replace(self, cohort=cohort, optional=optional, use=self.use if use is None else use)

    def during(self, shares: Tensor) -> Context:
        """The context of the round with these shares (M, T) of each step's examples to be seen.

        A row is of a client, a column of a step of time. Steps to come may not be seen.
        """
        expected = (self.num_clients, self.num_steps + 1)
        check(tuple(shares.shape) == expected, "shares: shape", tuple(shares.shape), f"{expected}")
        future = int(shares[:, self.step + 1 :].count_nonzero())
        check(not future, "shares", f"{future} of steps to come", f"0 after step {self.step}")
        return replace(self, shares=shares.double())

    @property
    def clustering_seed(self) -> int:
        """Seed of the random starts of a clustering in this round."""
        return seed_of(self.seed, Stream.CLUSTERING, self.round)

    def request(
        self,
        work: Work,
        shared: dict[str, Tensor] | None = None,
        reduction: Reduction | None = None,
        **each: Rows,
    ) -> Request:
        """Make the request that asks the cohort to do this work, with the seeds of this round.

        All clients get the tensors of `shared`, and each client gets its row of the `Rows` given by
        name.

        Raises `UsageError` unless `work` is a `Work`, those of `shared` are tensors, each of the
        others is `Rows` with a row for every client of the cohort, and `use` is one of its words.
        """
        check_work("work", work, Work)
        words = get_args(Use)
        check(self.use in words, "use", self.use, f"one of {', '.join(words)}")
        for name, tensor in (shared or {}).items():
            check_tensor(tensor, name)
        for name, rows in each.items():
            check_rows(name, rows)
            rows.check(name, len(self.cohort))
        if self.shares is not None:
            each[DURING] = Rows(self.shares, self.cohort)
        # A client's seed does not depend on the others: the same work gives the same reply in any
        # cohort.
        seeds = client_seeds(self.seed, Stream.CLIENT, self.round, self.cohort.numpy())
        request = Request(
            work, self.cohort, seeds, shared or {}, each, self.optional, reduction, use=self.use
        )
        if reduction is None:
            return request
        self._check_reduction(reduction, request)
        return replace(request, reduction=None) if reduction.rows else request

    def _check_reduction(self, reduction: Reduction, request: Request) -> None:
        """Raise `UsageError` unless the reduction has a cluster for each client asked."""
        expected = "a Reduction; write averaging.reduction(num_clusters, labels)"
        check(isinstance(reduction, Reduction), "reduction", type(reduction).__name__, expected)
        labels, count = reduction.labels, reduction.num_clusters
        if labels is not None:
            check_tensor(labels, "reduction: labels")
            right, shape = (self.num_clients,), tuple(labels.shape)
            expected = f"{right}, a cluster for each client of the federation"
            check(shape == right, "reduction: labels: shape", shape, expected)
            check_numbers(labels[self.cohort], "reduction: labels", count, "clusters")
            return
        # No labels: the work itself must promise a column with each client's choice.
        chosen = promised(request.work, request.shapes).get(reduction.chosen)
        how = "given: clients choose no cluster; write averaging.reduction(num_clusters, labels)"
        check(chosen is not None, "reduction: labels", None, how)
        assert chosen is not None
        # Choices are promised in 0 to `high`: each must have a cluster in the sums.
        most = int(chosen.high or 0)
        expected = f"{most + 1}, the number of models that clients choose from"
        check(count > most, "reduction: num_clusters", count, expected)


def check_work(name: str, work: object, *kinds: type) -> None:
    """Raise `UsageError` unless this is a work of one of these kinds."""
    named = " or ".join(with_article(kind.__name__) for kind in kinds)
    if isinstance(work, type):
        raise UsageError(f"{name}: a class instead of {named}; write {work.__name__}()")
    if not isinstance(work, kinds):
        raise UsageError(f"{name}: {kind_of(work)} instead of {named}")


def check_rows(name: str, rows: object) -> None:
    """Raise `UsageError` unless these are `Rows`."""
    expected = "Rows(table, index), which say the row of each client"
    check(isinstance(rows, Rows), name, type(rows).__name__, expected)
