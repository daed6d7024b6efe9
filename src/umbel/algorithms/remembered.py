"""Any method whose clients train by a scheme, and remember values from one round to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from umbel.algorithms.base import (
    Assigned,
    KeptState,
    Served,
    Setup,
    Traits,
    Wrapper,
    scheme_of,
)
from umbel.checks import check
from umbel.client.work import MEMORY, Work
from umbel.client.work.local_training import plainly, training_in
from umbel.client.work.schemes import Scheme
from umbel.flow import Flow, Replies, Request, Rows, relay
from umbel.server.aggregation import cluster_mean
from umbel.server.ask import Context
from umbel.server.repeated_rows import copies, with_rows


@dataclass(frozen=True)
class Remembered(Wrapper[KeptState]):
    """A method with what its clients remember, if `local.scheme` needs it; a run adds it by itself.

    Requests for training have each client's values, and replies bring them back. In what is only
    trained to be compared clients train plainly, and so do newcomers.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    def __post_init__(self) -> None:
        name, equal = type(self.scheme).__name__, not self.of.uses_example_counts
        expected = f'"equal", as {name} weighs its means of clients\' values'
        check(equal or not self.scheme.equal, "averaging.weights", "examples", expected)

    @property
    def scheme(self) -> Scheme:
        """How clients train."""
        found = scheme_of(self.of)
        assert found is not None
        return found

    @property
    def sends(self) -> tuple[Work, ...]:
        return *self.of.sends, *map(plainly, self.of.sends)

    def init(self, setup: Setup) -> KeptState:
        inner = self.of.init(setup)
        start = self.scheme.start(inner.models[0], setup.layout)
        said = f"values that each of {setup.num_clients:,} clients remembers"
        return KeptState.around(inner, copies(start[None], setup.num_clients, said))

    def round(self, state: KeptState, ctx: Context) -> Flow[KeptState]:
        kept, labels, scheme = state.kept, state.labels, self.scheme

        def ask(request: Request) -> Flow[Replies]:
            nonlocal kept, labels
            if "theta" in request.each and training_in(request.work) is not None:
                labels = labels.index_copy(0, request.clients, request.each["theta"].index)
            asked = self._with_values(request, kept, labels)
            if asked is None:
                return (yield replace(request, work=plainly(request.work)))
            answer = yield asked
            if "chosen" in answer.columns:
                labels = labels.index_copy(0, answer.clients, answer.columns["chosen"])
            kept = with_rows(kept, answer.clients, answer.columns[scheme.column])
            columns = {n: rows for n, rows in answer.columns.items() if n != scheme.column}
            if scheme.moves_means:
                means = _means(kept, labels)[labels[answer.clients]]
                columns["update"] = scheme.averaged(columns["update"], means)
            return replace(answer, columns=columns)

        inner = yield from relay(self.of.round(state.inner[0], ctx), ask)
        return KeptState.around(inner, kept)

    def serve(self, state: KeptState, ctx: Context) -> Flow[Served]:
        served = yield from relay(self.of.serve(state.inner[0], ctx), _plain)
        scheme, labels = self.scheme, state.labels[ctx.cohort]
        if scheme.uses == "cluster":
            return served
        each = Rows(state.kept, ctx.cohort)
        if scheme.uses == "served":
            everyone = torch.arange(len(ctx.cohort))
            means = _means(state.kept, state.labels)[labels] if scheme.moves_means else None
            own = scheme.served(served.models.take(everyone), each.take(everyone), means)
            each = Rows(own, everyone)
        return replace(served, models=each, adapted_from=served.models)

    def assign(self, state: KeptState, ctx: Context) -> Flow[Assigned]:
        return (yield from relay(self.of.assign(state.inner[0], ctx), _plain))

    def _with_values(self, request: Request, kept: Tensor, labels: Tensor) -> Request | None:
        """The request with the clients' values; None if they train plainly, or not at all."""
        if request.use == "compared" or training_in(request.work) is None:
            return None
        own, scheme = Rows(kept, request.clients), self.scheme
        each, shared = dict(request.each), dict(request.shared)
        if scheme.column == MEMORY:
            each[MEMORY] = own
        elif "theta" in each:
            means = Rows(_means(kept, labels), labels[request.clients])
            everyone = torch.arange(len(request.clients))
            corrected = means.take(everyone) - own.take(everyone)
            each["slope"] = Rows(corrected, everyone)
        elif "models" in shared:
            count = len(shared["models"])
            shared["means"], each[scheme.column] = _means(kept, labels, count), own
        reduction = None if scheme.moves_means else request.reduction
        asked = replace(request, each=each, shared=shared, reduction=reduction)
        return asked if scheme.column in asked.work.promises(asked.shapes) else None


def _plain(request: Request) -> Flow[Replies]:
    return (yield replace(request, work=plainly(request.work)))


def _means(kept: Tensor, labels: Tensor, count: int = 0) -> Tensor:
    """The mean (K, Q) of what the clients of each cluster remember; K is at least `count`."""
    count = max(count, int(labels.max()) + 1)
    return cluster_mean(kept, labels, torch.ones_like(labels), count)
