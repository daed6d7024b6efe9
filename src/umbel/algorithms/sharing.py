"""Any method that only trains, with a part of each model that stays with its client: one of the two
matrices of adapters, as in Guo et al., Selective aggregation for low-rank adaptation in federated
learning, ICLR 2025, or a head, as in Arivazhagan et al., Federated learning with personalization
layers, 2019."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from umbel.algorithms.base import (
    Algorithm,
    Assigned,
    Known,
    Served,
    Setup,
    State,
    Traits,
    Wrapper,
    check_apart,
    check_only_trains,
)
from umbel.checks import UsageError, check
from umbel.client.layout import Layout
from umbel.client.work import MEMORY, LocalTraining, SharedTraining, Work, joined, parted
from umbel.flow import Flow, Replies, Request, Rows
from umbel.server.ask import Context
from umbel.server.repeated_rows import copies

T = TypeVar("T")

STAYS = {"A": ("*lora_B*",), "B": ("*lora_A*",), "both": ()}
"""Patterns of the values that stay with a client, by the setting `share`."""

SHARED = "such as fedavg, fedprox, flacc, fl-hc and fixed-clusters"


@dataclass(frozen=True)
class SharingState(State):
    """`models` and `labels` are those of the inner method."""

    states_in: ClassVar[str] = "inner"

    inner: tuple[State, ...]  # one: the state of the inner method
    kept: Tensor  # (M, Q) the values that stay with each client

    @property
    def labels_end(self) -> int:
        return self.inner[0].labels_end


@dataclass(frozen=True)
class Sharing(Wrapper[SharingState]):
    """A method in which clients only train, with a part of each model kept by its client.

    Each client continues to train its part from the values of its last training, unless this was
    only to find its cluster. The part is not averaged, and is 0 in the updates that the method
    clusters by. It is not counted as traffic; over Flower, the server has a copy of it all the
    same, for its checkpoint. A client uses its cluster's model with its own part; a newcomer uses
    the initial values of that part.
    """

    asked_by: ClassVar[tuple[str, ...]] = ("share", "kept")
    traits: ClassVar[Traits] = Traits(only_trains=None)  # the kept part is in replies, too

    share: Literal["A", "B", "both"] = "both"  #: which matrices of low-rank adapters are shared
    kept: tuple[str, ...] = ()  #: patterns of further values that stay with each client

    def __post_init__(self) -> None:
        name, expected = type(self.of).__name__, "a method whose clients use one model each"
        mixes = self.of.traits.mixes or self.of.traits.mixes_experts
        check(not mixes, "share", name, expected)
        if isinstance(self.of, Sharing):
            raise UsageError(
                "share: Sharing inside Sharing; name all values that stay with clients in one"
            )
        # `Restarts` around `Sharing` has a kept part in each start; the reverse would have one for
        # all.
        if isinstance(self.of, Wrapper):
            raise UsageError(
                f"share: all starts would train the same part; write {name}(Sharing(...))"
            )
        check_apart(self)
        only = f"a method whose clients do nothing but train, {SHARED}"
        check_only_trains(self.of, "share", name, only)
        _check_one_start(self.of)

    @property
    def stays(self) -> tuple[str, ...]:
        """Patterns of all values that stay with a client."""
        return (*STAYS[self.share], *self.kept)

    @property
    def idle(self) -> bool:
        return not self.stays

    def inner(self, state: SharingState) -> State:
        return state.inner[0]

    @property
    def sends(self) -> tuple[Work, ...]:
        trained = (work for work in self.of.sends if isinstance(work, LocalTraining))
        # Newcomers, who keep nothing yet, are asked as by the method itself.
        return *(SharedTraining(work, self.stays) for work in trained), *self.of.sends

    def check(self, known: Known) -> None:
        self.of.check(known)
        if known.layout is not None:
            known.layout.mask(STAYS[self.share], f"share = {self.share!r}")
            mask = known.layout.mask(self.stays, "kept")
            check(not bool(mask.all()), "kept", self.kept, "a choice that leaves values to share")

    def init(self, setup: Setup) -> SharingState:
        inner = self.of.init(setup)
        _, own = parted(setup.layout, self.stays)
        # (1, Q) of model 0: kept parts start equal, so that clusters do not differ by chance.
        start = inner.models[:1].index_select(1, own)
        said = f"values that stay with each of {setup.num_clients:,} clients"
        return _around(inner, copies(start, setup.num_clients, said))

    def round(self, state: SharingState, ctx: Context) -> Flow[SharingState]:
        kept = state.kept

        def ask(request: Request) -> Flow[Replies]:
            nonlocal kept
            answer = yield self._parted(request, kept, ctx.layout)
            # What is trained only for a comparison changes no model, nor any part of one.
            if request.use != "compared":
                kept = kept.index_copy(0, answer.clients, answer.columns[MEMORY])
            return self._whole(answer, ctx.layout)

        inner = yield from _relayed(self.of.round(state.inner[0], ctx), ask)
        return _around(inner, kept)

    def serve(self, state: SharingState, ctx: Context) -> Flow[Served]:
        # `places` (P - Q,) are the positions of shared values in a model, and `own` (Q,) of the
        # others.
        served = yield from self.of.serve(state.inner[0], ctx)
        places, own = parted(ctx.layout, self.stays)
        shared = served.models.table[served.models.index].index_select(1, places)
        models = joined(shared, state.kept[ctx.cohort], places, own)
        each = Rows(models, torch.arange(len(models)))
        return replace(served, models=each, adapted_from=served.models)

    def assign(self, state: SharingState, ctx: Context) -> Flow[Assigned]:
        """Compare newcomers by the shared values alone, as the run's clients were."""
        _, own = parted(ctx.layout, self.stays)

        def ask(request: Request) -> Flow[Replies]:
            answer = yield request
            columns = dict(answer.columns)
            # The run's clients were clustered by updates with 0 in their kept part.
            if "update" in columns:
                columns["update"] = columns["update"].index_fill(1, own, 0)
            return replace(answer, columns=columns)

        return (yield from _relayed(self.of.assign(state.inner[0], ctx), ask))

    def _parted(self, request: Request, kept: Tensor, layout: Layout) -> Request:
        """Return the request with only the shared values in it; clients remember the others."""
        if not isinstance(request.work, LocalTraining) or request.each.keys() != {"theta"}:
            raise UsageError(
                f"share: {type(self.of).__name__} asks clients for {type(request.work).__name__}, "
                "which needs whole models; a part of the model can be shared by methods whose "
                f"clients do nothing but train, {SHARED}"
            )
        places, _ = parted(layout, self.stays)
        theta = request.each["theta"]
        each = {
            "theta": Rows(theta.table.index_select(1, places), theta.index),
            MEMORY: Rows(kept, request.clients),
        }
        return replace(request, work=SharedTraining(request.work, self.stays), each=each)

    def _whole(self, replies: Replies, layout: Layout) -> Replies:
        """Return the replies with updates of whole models: 0 for values that stay with clients."""
        places, own = parted(layout, self.stays)

        def whole(rows: Tensor) -> Tensor:
            return joined(rows, rows.new_zeros(len(rows), len(own)), places, own)

        columns = {
            name: whole(column) if name == "update" else column
            for name, column in replies.columns.items()
            if name != MEMORY
        }
        sums = replies.sums
        sums = None if sums is None else replace(sums, values=whole(sums.values))
        return replace(replies, columns=columns, sums=sums)


def _relayed(flow: Flow[T], ask: Callable[[Request], Flow[Replies]]) -> Flow[T]:
    """Return the result of a flow, with each of its requests answered by `ask`."""
    # `yield from flow` can't be used: each request is changed on its way out, and its reply back.
    try:
        request = next(flow)
        while True:
            request = flow.send((yield from ask(request)))
    except StopIteration as stop:
        result: T = stop.value
        return result


def _check_one_start(method: Algorithm[Any]) -> None:
    """Raise `UsageError` if a method is known to start from a separate model for each client.

    Kept values start as in the first model: the parameters that LCFL compares would differ between
    clients by values that no client trains.
    """
    one_start = method.traits.one_start
    expected = "a method whose clients start from one model"
    check(one_start is not None, "share", type(method).__name__, expected)
    for setting, fine in (one_start or {}).items():
        value, why = getattr(method, setting), "what stays with clients starts equal everywhere"
        check(value in fine, setting, value, f'"{" or ".join(fine)}": {why}')


def _around(inner: State, kept: Tensor) -> SharingState:
    return SharingState(inner.models, inner.labels, (inner,), kept)
