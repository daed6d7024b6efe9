"""Who is a member of a federation in each round: clients that come, leave and come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.algorithms.base import Algorithm
from umbel.algorithms.restarts import innermost
from umbel.checks import UsageError, check, check_least, nearest
from umbel.flow import Engine, Flow, Layer, Replies, Request, ask
from umbel.seeds import Stream, generator
from umbel.settings import Settings
from umbel.summary import in_short


@dataclass(frozen=True)
class Event(Settings):
    """Clients that come and leave before a round."""

    round: int  #: before which it happens, counted from 0
    joins: tuple[str, ...] = ()  #: names of the clients that come, or come back
    leaves: tuple[str, ...] = ()  #: names of the clients that leave

    def __post_init__(self) -> None:
        check(self.round >= 1, "round", self.round, "1 or more: `present` says who is there first")


@dataclass(frozen=True)
class Membership(Settings):
    """Which clients are there in a round: by events, by rates, or both.

    >>> umbel.Membership(events=(umbel.Event(5, joins=("c9",), leaves=("c1",)),)).forget_after
    10

    A run's federation has everybody who ever comes. The method knows of the members alone: those
    who are there, and those who left less than `forget_after` rounds ago, who keep their place. A
    client that comes later is new to it. Over Flower, members are those whose nodes are connected,
    and only `forget_after` counts. Raises `UsageError` for values out of range.
    """

    events: tuple[Event, ...] = ()  #: who comes and leaves before which rounds
    joining: float = 0.0  #: probability that a client who is not there comes, before each round
    leaving: float = 0.0  #: probability that a client who is there leaves, before each round
    #: names of the clients that are there in round 0; (): all but those that join before they leave
    present: tuple[str, ...] = ()
    share: float = 1.0  #: share of these, drawn at random, that are there in round 0
    forget_after: int = 10  #: rounds for which a client that left keeps its place

    def __post_init__(self) -> None:
        for name in ("joining", "leaving"):
            check(0 <= getattr(self, name) < 1, name, getattr(self, name), "in [0, 1)")
        check(0 < self.share <= 1, "share", self.share, "in (0, 1]")
        check_least(self, 0, "forget_after")

    def check_for(self, algorithm: Algorithm[Any], participation: object) -> None:
        """Raise `UsageError` for settings that are about a fixed list of clients."""
        method, expected = innermost(algorithm), "left out with [membership], as clients come"
        for name in ("weights", "rounds"):
            given = getattr(participation, name, ())
            check(not given, f"participation.{name}", given, expected)
        rule = getattr(getattr(method, "averaging", None), "rule", None)
        trusted = getattr(rule, "trusted", ())
        check(not trusted, "algorithm.averaging.rule.trusted", trusted, expected)
        for name in ("clusters", "sizes"):
            fixed = getattr(method, name, ()) and not getattr(method, "clients", ())
            how = f"{expected}; name them by `clients`"
            check(not fixed, f"algorithm.{name}", getattr(method, name, ()), how)

    def attendance(self, names: Sequence[str], seed: int) -> Attendance:
        """Who is there in each round of a run. Raises `UsageError` for events that can't be."""
        places = {name: place for place, name in enumerate(names)}

        def numbers(field: str, named: Sequence[str]) -> set[int]:
            for name in named:
                if name not in places:
                    raise UsageError(
                        f"membership.{field}: no client {name!r}; {nearest(name, places)}"
                    )
            return {places[name] for name in named}

        events = [
            (one.round, numbers("events", one.joins), numbers("events", one.leaves))
            for one in sorted(self.events, key=lambda event: event.round)
        ]
        first = numbers("present", self.present)
        if not first:  # all but those that join before they leave
            first, seen = set(range(len(names))), set[int]()
            for _, come, go in events:
                first -= come - seen
                seen |= come | go
        check(bool(first), "membership.events", "everybody joins later", "somebody there at first")
        if self.share < 1:
            size = max(1, round(self.share * len(first)))
            rng = generator(seed, Stream.MEMBERSHIP)
            first = set(rng.choice(sorted(first), size, replace=False).tolist())
        drawn = bool(self.joining or self.leaving or self.share < 1)

        def change(number: int, here: NDArray[np.int64]) -> Change:
            there, joins, leaves = set(here.tolist()), set[int](), set[int]()
            if self.joining or self.leaving:
                draws = generator(seed, Stream.MEMBERSHIP, number + 1).random(len(names))
                joins = set(np.flatnonzero(draws < self.joining).tolist()) - there
                leaves = set(np.flatnonzero(draws < self.leaving).tolist()) & there
            for when, come, go in events:
                if when != number:
                    continue
                # Where some are drawn, they may have come or left by chance.
                for what, wrong, so in (
                    ("joins", come & there, "not "),
                    ("leaves", go - there, ""),
                ):
                    name = names[min(wrong, default=0)]
                    expected = f"a client that is {so}there before the round"
                    fine = drawn or not wrong
                    check(fine, f"membership.events: {what} of round {number}", name, expected)
                joins, leaves = (joins | come) - go, (leaves | go) - come
            return joins - there, leaves & there

        moves = bool(events or self.joining or self.leaving)
        found = Attendance(sorted(first), self.forget_after, change if moves else None)
        if events and not drawn:
            found.at(events[-1][0])  # raises now, not in that round
        return found


Change = tuple[set[int], set[int]]
"""Numbers of clients that come before a round, and of those that leave."""


@dataclass(frozen=True)
class Members:
    """The members in a round by their numbers in the federation, in the order of a state's rows."""

    round: int
    clients: NDArray[np.int64]  # (J,)
    left_at: NDArray[np.int64]  # (J,) the round before which each has left; -1 if it is there
    before: int  # number of members in the round before
    kept: NDArray[np.int64]  # positions among these of those who stay
    joined: tuple[int, ...] = ()  # clients that came before this round, or came back
    left: tuple[int, ...] = ()  # clients that left before this round

    __repr__ = in_short

    @property
    def here(self) -> NDArray[np.int64]:
        """Positions of the members that are there."""
        return np.flatnonzero(self.left_at < 0)

    @property
    def newcomers(self) -> NDArray[np.int64]:
        """Positions of the members that the state before did not have."""
        return np.arange(len(self.kept), len(self.clients))

    def after(self, change: Change, forget_after: int) -> Members:
        """The members in the next round."""
        number, (joins, leaves) = self.round + 1, change
        left_at = self.left_at.copy()
        back = np.isin(self.clients, sorted(joins))
        left_at[back] = -1
        left_at[np.isin(self.clients, sorted(leaves))] = number
        kept = np.flatnonzero((left_at < 0) | (number - left_at < forget_after))
        new = np.array(sorted(joins - set(self.clients[back].tolist())), dtype=np.int64)
        if not len(kept) + len(new):  # a method needs somebody: the last ones are not forgotten
            kept = np.arange(len(left_at))
        return Members(
            number,
            np.concatenate([self.clients[kept], new]),
            np.concatenate([left_at[kept], np.full_like(new, -1)]),
            len(left_at),
            kept,
            tuple(sorted(joins)),
            tuple(sorted(leaves)),
        )


class Attendance:
    """Who the members are in each round."""

    def __init__(
        self,
        first: Sequence[int],
        forget_after: int,
        change: Callable[[int, NDArray[np.int64]], Change] | None = None,
    ) -> None:
        clients = np.asarray(first, dtype=np.int64)
        everyone = np.arange(len(clients))
        self._first = Members(0, clients, np.full_like(clients, -1), len(clients), everyone)
        self._now, self._forget_after, self._change = self._first, forget_after, change

    def at(self, number: int) -> Members:
        """The members in a round; those of rounds before it decide."""
        if self._change is None:  # nobody comes or leaves
            return replace(self._first, round=number)
        now = self._now if number >= self._now.round else self._first
        while now.round < number:
            change = self._change(now.round + 1, now.clients[now.here])
            now = now.after(change, self._forget_after)
        self._now = now
        return now


@dataclass
class AmongMembers(Layer):
    """Asks members by their numbers in the federation, and none that is not there."""

    engine: Engine
    members: Members
    num_clients: int  # of the federation

    def ask(self, request: Request) -> Flow[Replies]:
        numbers = torch.from_numpy(self.members.clients)
        here = torch.from_numpy(self.members.left_at)[request.clients] < 0
        request = request if bool(here.all()) else request.pick(here.nonzero()[:, 0])
        reduction = request.reduction
        if reduction is not None and reduction.labels is not None:
            labels = torch.zeros(self.num_clients, dtype=torch.long)
            labels = labels.index_copy(0, numbers, reduction.labels)
            request = replace(request, reduction=replace(reduction, labels=labels))
        request = replace(request, clients=numbers[request.clients])
        replies = yield from ask(self.engine, request)
        places = torch.full((self.num_clients,), -1)
        places = places.index_copy(0, numbers, torch.arange(len(numbers)))
        return replace(replies, clients=places[replies.clients])
