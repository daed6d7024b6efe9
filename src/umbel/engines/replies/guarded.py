"""Checks of every reply, around the engine that it comes from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, prod
from types import MappingProxyType
from typing import TypeAlias

import torch

from umbel.checks import DivergedError, printable
from umbel.checks import QuorumError as QuorumError
from umbel.client.layout import Layout
from umbel.client.net import Net
from umbel.client.objectives import OBJECTIVES
from umbel.engines.replies.bounds import Bounds, Claims
from umbel.engines.replies.claims import Sizes, held
from umbel.engines.replies.faults import Faults
from umbel.engines.replies.invalid_models import moved_by_gradients, negative_variances, overflows
from umbel.engines.replies.validation import (
    DIVERGED,
    Limits,
    bad_values,
    check_sent,
    contradictions,
    false_losses,
    promises,
)
from umbel.flow import Engine, Flow, Layer, Replies, Request, ask
from umbel.reduction import Sums
from umbel.summary import few

log = logging.getLogger(__name__)

Ask: TypeAlias = Callable[[Request], Flow[Replies]]

ROUNDING = 1e-9
"""Rounding error of a share times a number of clients: 0.55 of 100 is 55, and not 56."""

BLOCK_BYTES = 2**28
"""Largest block of rows held in memory while summing, in bytes (at 8 bytes a value)."""


@dataclass
class Absent:
    """Clients that gave no usable reply to a request."""

    missing: set[int] = field(default_factory=set)  # no answer came
    silent: dict[int, str] = field(default_factory=dict)  # why, as far as that is known
    refused: dict[int, str] = field(default_factory=dict)  # an answer came, and why it is not used
    # clients whose numbers were not finite, or too large
    diverged: set[int] = field(default_factory=set)


@dataclass
class Guarded(Layer):
    """Passes on usable replies only; raises `QuorumError` if they are too few.

    Raises `UsageError` for a request that sends other models than the network's.

    `advice` returns what to change if numbers are not finite or far too large. If only sums of rows
    are needed, clients in this process are asked in blocks, so that few rows are in memory at once.
    Bounds are relative to all replies: if a client exceeds them, the blocks are computed a second
    time. Clients `elsewhere` are always asked in one exchange.
    """

    engine: Engine
    limits: Limits
    advice: Callable[[], str] | None = None
    faults: Faults = field(default_factory=Faults)  # that are simulated, and tell of no divergence
    elsewhere: bool = False  # whether clients are on other machines
    # whether averages are taken over clients of several clusters, as of shared parameters
    pooled: bool = False
    # whose models requests must send, with running statistics beside trained values; None: requests
    # are not checked, and all values are trained ones
    net: Net | None = None
    # the clients' numbers of examples by split, to which claims are held; {}: claims are trusted
    sizes: Sizes = field(default_factory=dict, repr=False)
    # clients whose examples are not those that they began with, and how; the engine fills it
    changed: Mapping[int, str] = field(default_factory=dict)
    names: Sequence[str] = ()  # of the clients, for messages
    missing: set[int] = field(default_factory=set)  # no answer came
    refused: dict[int, str] = field(default_factory=dict)  # an answer came, and why it is not used
    bounded: dict[int, str] = field(default_factory=dict)  # an answer was used in part, and how
    warned: bool = False

    def ask(self, request: Request) -> Flow[Replies]:
        if self.net is not None:
            check_sent(request, self.net)
        absent = Absent()
        replies, bounds = yield from self._bounded(request, absent)
        missing, refused = absent.missing, absent.refused
        self.missing |= missing
        self.refused |= refused
        self._note(bounds.reasons)
        usable, asked = len(replies.clients), len(request.clients)
        # Numbers that a simulated fault has spoilt say nothing about training.
        diverged = len(absent.diverged - self.faults.spoilt(request))
        quorum = ceil(self.limits.quorum * asked - ROUNDING)
        # A diverging run must not continue silently, but a single dishonest client must not end it.
        least = max(quorum, int(2 * diverged >= max(asked, 1)))
        if usable < least and not request.optional:
            asks = f"limits.quorum = {self.limits.quorum:g} asks for {quorum}"
            kind = DivergedError if diverged and self.advice is not None else QuorumError
            raise kind(
                self._divergence(diverged, asked)
                + f"{usable} of {asked} clients gave a usable reply, and "
                + (asks if quorum else "without one nothing can be learned")
                + f": {absences(missing, refused, self.names, absent.silent)}"
            )
        if diverged and self.advice is not None and not self.warned:
            self.warned = True
            log.warning(
                "%s%s", self._divergence(diverged, asked), absences(set(), refused, self.names)
            )
        return replies

    def _bounded(self, request: Request, absent: Absent) -> Flow[tuple[Replies, Bounds]]:
        """Return the usable replies within their bounds, summed if allowed, and these bounds."""
        claims: list[Claims | None] = []

        def seen(block: Request) -> Flow[Replies]:
            usable = yield from self._usable(block, absent, partial(ask, self.engine))
            claims.append(Claims.of(block, usable, self.limits, self.layout, self.pooled))
            return usable

        def among() -> Bounds:
            bounds = Bounds.among(claims, self.limits)
            absent.refused |= bounds.refused
            return bounds

        # One exchange with clients elsewhere: each message costs time, and rows arrive all at once.
        blocks = [request] if self.elsewhere else list(_blocks(request))
        if len(blocks) == 1:
            usable = yield from seen(request)
            bounds = among()
            return _reduced(request, bounds.apply(usable)), bounds
        summed = yield from _joined(blocks, seen)
        bounds = among()
        # The common case: all are within their bounds, and the sums of the first pass are right.
        if not bounds.reasons and not bounds.refused:
            return summed, bounds
        again: Ask = getattr(self.engine, "again", partial(ask, self.engine))

        def within(block: Request) -> Flow[Replies]:
            usable = yield from self._usable(block, absent, again)
            return bounds.apply(usable)

        # Rows of the first pass are gone: the blocks are asked again, and bounded before they are
        # summed.
        summed = yield from _joined(blocks, within)
        return summed, bounds

    def _usable(self, block: Request, absent: Absent, answer: Ask) -> Flow[Replies]:
        """Return the usable replies; note the unusable and the missing ones in `absent`."""
        replies = yield from answer(block)
        values = bad_values(block, replies, self.limits, self.layout)
        absent.diverged |= {client for client, why in values.items() if why.endswith(DIVERGED)}
        # The other checks rely on the types and ranges that the first one has looked at.
        plausible = _without(replies, values)
        bad = {**replies.refused, **values, **overflows(block, plausible)}
        bad |= negative_variances(block, plausible, self.layout)
        bad |= moved_by_gradients(block, plausible, self.layout)
        bad |= contradictions(plausible)
        if self.net is not None and self.net.objective in OBJECTIVES.values():
            bad |= false_losses(block, plausible)  # which an objective of one's own may give
        absent.missing |= set(block.clients.tolist()) - {*replies.clients.tolist(), *bad}
        absent.silent |= replies.silent
        absent.refused |= bad
        usable, held_back = held(block, _without(replies, bad), self.sizes)
        self._note(held_back)
        return usable

    @property
    def layout(self) -> Layout | None:
        """The layout of the models; None without a net."""
        return None if self.net is None else self.net.layout

    def _note(self, reasons: Mapping[int, str]) -> None:
        """Add reasons to those of the bounded clients."""
        for client, why in reasons.items():
            before = self.bounded.get(client, "")
            if why not in before:
                self.bounded[client] = f"{before}; {why}" if before else why

    def _divergence(self, diverged: int, asked: int) -> str:
        """Return advice if clients' training diverged, else an empty string."""
        if not diverged or self.advice is None:
            return ""
        most = f"limits.max_value = {self.limits.max_value:g}"
        return (
            f"training diverged for {diverged} of {asked} clients: their numbers are not finite, "
            f"or beyond {most}; {self.advice()}. "
        )

    def take(self) -> tuple[set[int], dict[int, str], dict[int, str]]:
        """Return the missing, refused and bounded clients since the last call."""
        self._note(self.changed)
        taken = self.missing, self.refused, self.bounded
        self.missing, self.refused, self.bounded = set(), {}, {}
        return taken


def _blocks(request: Request) -> Iterator[Request]:
    """Yield the request, or parts with rows in `BLOCK_BYTES` if only sums are needed."""
    if request.reduction is None or not len(request.clients):
        yield request
        return
    promise = promises(request)[request.reduction.column]
    # One row at a time would leave all workers but one idle.
    size = max(2, BLOCK_BYTES // (8 * prod(promise.shape)))
    for positions in torch.split(torch.arange(len(request.clients)), size):
        yield request if len(positions) == len(request.clients) else request.pick(positions)


def _without(replies: Replies, bad: Mapping[int, str]) -> Replies:
    keep = [n for n, client in enumerate(replies.clients.tolist()) if client not in bad]
    if len(keep) == len(replies.clients):
        return replies
    return replies.pick(torch.tensor(keep, dtype=torch.long))


def _reduced(request: Request, replies: Replies) -> Replies:
    if request.reduction is None:
        return replies
    replies = replies.in_order()  # so that the sum does not depend on who answered first
    sums, columns = request.reduction.of(replies.clients, replies.columns)
    return replace(replies, columns=columns, sums=sums)


def _joined(blocks: Iterable[Request], answer: Ask) -> Flow[Replies]:
    """Join the replies of all blocks. Sums are as large as models, so they are added up at once."""
    sums: Sums | None = None
    rest: list[Replies] = []
    for block in blocks:
        part = _reduced(block, (yield from answer(block)))
        sums = part.sums if sums is None or part.sums is None else sums + part.sums
        rest.append(replace(part, sums=None))
    columns = {name: torch.cat([part.columns[name] for part in rest]) for name in rest[0].columns}
    return Replies(torch.cat([part.clients for part in rest]), columns, sums=sums)


def absences(
    missing: Collection[int],
    refused: Mapping[int, str],
    names: Sequence[str] = (),
    silent: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """Describe the clients that did not answer, and those refused, with the first reason."""
    told = [few([*dict.fromkeys(silent[client] for client in missing if client in silent)])]
    told += [f"clients {few([names[client] for client in sorted(missing)])}"] if names else []
    said = "; ".join(filter(None, told))
    parts = [f"{len(missing)} did not answer" + (f" ({said})" if said else "")] if missing else []
    for client, why in list(refused.items())[:1]:
        who = printable(names[client]) if names else client
        parts.append(f"{len(refused)} were refused (client {who}: {why})")
    return ", ".join(parts)
