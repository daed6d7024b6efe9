"""Any method of one model a client, with a part of each that stays with its client: one of the two
matrices of adapters, as in Guo et al., Selective aggregation for low-rank adaptation in federated
learning, ICLR 2025, or a head, as in Arivazhagan et al., Federated learning with personalization
layers, 2019."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from umbel.algorithms.base import (
    Algorithm,
    Assigned,
    KeptState,
    Known,
    Served,
    Setup,
    Traits,
    Wrapper,
    check_apart,
    scheme_of,
)
from umbel.checks import UsageError, check
from umbel.client.layout import Layout
from umbel.client.work import (
    MEMORY,
    Gradient,
    JointScore,
    LocalTraining,
    MeanLoss,
    PrincipalVectors,
    SharedTraining,
    Work,
    joined,
    parted,
)
from umbel.client.work.base import innermost
from umbel.client.work.shared_training import OF_MODELS, STEPS
from umbel.flow import Flow, Replies, Request, Rows, relay
from umbel.server.ask import Context
from umbel.server.repeated_rows import copies, with_rows

STAYS = {"A": ("*lora_B*",), "B": ("*lora_A*",), "both": ()}
"""Patterns of the values that stay with a client, by the setting `share`."""

POSSIBLE = (LocalTraining, Gradient, MeanLoss, JointScore, PrincipalVectors)
"""Works that clients do as well with a model of which a part is their own."""


@dataclass(frozen=True)
class Sharing(Wrapper[KeptState]):
    """A method in which a part of each model is kept by its client.

    Each client continues to train its part from the values of its last training, unless this was
    only to find its cluster. The part is not averaged, and is 0 in the updates and gradients that
    the method clusters by; losses of several models are those with the client's part in each. It is
    not counted as traffic; over Flower, the server has a copy of it all the same, for its
    checkpoint. A client uses its cluster's model with its own part; a newcomer uses the initial
    values of that part.
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
        scheme = scheme_of(self.of)
        remembers = scheme is not None and scheme.column
        expected = "possible together with local.scheme, whose clients remember other values"
        check(not remembers, "share" if self.share != "both" else "kept", self.stays, expected)
        for work in self.of.sends:
            self._check_possible(work)
        _check_one_start(self.of)

    @property
    def stays(self) -> tuple[str, ...]:
        """Patterns of all values that stay with a client."""
        return (*STAYS[self.share], *self.kept)

    @property
    def idle(self) -> bool:
        return not self.stays

    @property
    def sends(self) -> tuple[Work, ...]:
        # Newcomers, who keep nothing yet, are asked as by the method itself.
        return *(SharedTraining(work, self.stays) for work in self.of.sends), *self.of.sends

    def check(self, known: Known) -> None:
        self.of.check(known)
        if known.layout is not None:
            known.layout.mask(STAYS[self.share], f"share = {self.share!r}")
            mask = known.layout.mask(self.stays, "kept")
            check(not bool(mask.all()), "kept", self.kept, "a choice that leaves values to share")

    def init(self, setup: Setup) -> KeptState:
        inner = self.of.init(setup)
        _, own = parted(setup.layout, self.stays)
        # (1, Q) of model 0: kept parts start equal, so that clusters do not differ by chance.
        start = inner.models[:1].index_select(1, own)
        models = inner.models.index_copy(1, own, start.expand(len(inner.models), -1))
        said = f"values that stay with each of {setup.num_clients:,} clients"
        kept = copies(start, setup.num_clients, said)
        return KeptState.around(replace(inner, models=models), kept)

    def round(self, state: KeptState, ctx: Context) -> Flow[KeptState]:
        kept = state.kept

        def ask(request: Request) -> Flow[Replies]:
            nonlocal kept
            answer = yield self._parted(request, kept, ctx.layout)
            # What is trained only for a comparison changes no model, nor any part of one.
            if request.use != "compared" and MEMORY in answer.columns:
                kept = with_rows(kept, answer.clients, answer.columns[MEMORY])
            return self._whole(answer, ctx.layout)

        inner = yield from relay(self.of.round(state.inner[0], ctx), ask)
        return KeptState.around(inner, kept)

    def serve(self, state: KeptState, ctx: Context) -> Flow[Served]:
        def ask(request: Request) -> Flow[Replies]:
            answer = yield self._parted(request, state.kept, ctx.layout)
            return self._whole(answer, ctx.layout)

        served = yield from relay(self.of.serve(state.inner[0], ctx), ask)
        _, own = parted(ctx.layout, self.stays)
        everyone = torch.arange(len(ctx.cohort))
        models = served.models.take(everyone).clone()  # in which each gets its own values
        models.index_copy_(1, own, state.kept.index_select(0, ctx.cohort))
        return replace(served, models=Rows(models, everyone), adapted_from=served.models)

    def assign(self, state: KeptState, ctx: Context) -> Flow[Assigned]:
        """Compare newcomers by the shared values alone, as the run's clients were."""
        _, own = parted(ctx.layout, self.stays)

        def ask(request: Request) -> Flow[Replies]:
            answer = yield request
            columns = dict(answer.columns)
            # The run's clients were clustered by updates with 0 in their kept part.
            for name in columns.keys() & {*STEPS}:
                columns[name] = columns[name].index_fill(1, own, 0)
            return replace(answer, columns=columns)

        return (yield from relay(self.of.assign(state.inner[0], ctx), ask))

    def _parted(self, request: Request, kept: Tensor, layout: Layout) -> Request:
        """Return the request with only the shared values in it; clients remember the others."""
        self._check_possible(request.work)
        if not {*request.each, *request.shared} & {*OF_MODELS}:
            return request
        places, _ = parted(layout, self.stays)
        each, shared = dict(request.each), dict(request.shared)
        for name in each.keys() & {*OF_MODELS}:
            each[name] = replace(each[name], table=each[name].table.index_select(-1, places))
        for name in shared.keys() & {*OF_MODELS}:
            shared[name] = shared[name].index_select(-1, places)
        each[MEMORY] = Rows(kept, request.clients)
        work = SharedTraining(request.work, self.stays)
        return replace(request, work=work, each=each, shared=shared)

    def _check_possible(self, work: Work) -> None:
        """Raise `UsageError` for a work that needs models without a part of the client's own."""
        of, kind = type(self.of).__name__, type(work).__name__
        expected = f"possible: clients of {of} are asked for {kind}, which needs whole models"
        check(isinstance(innermost(work), POSSIBLE), "share", self.stays, expected)

    def _whole(self, replies: Replies, layout: Layout) -> Replies:
        """Return the replies with updates of whole models: 0 for values that stay with clients."""
        places, own = parted(layout, self.stays)

        def whole(rows: Tensor) -> Tensor:
            return joined(rows, rows.new_zeros(len(rows), len(own)), places, own)

        columns = {
            name: whole(column) if name in STEPS else column
            for name, column in replies.columns.items()
            if name != MEMORY
        }
        sums = replies.sums
        sums = None if sums is None else replace(sums, values=whole(sums.values))
        return replace(replies, columns=columns, sums=sums)


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
