"""The tasks and the actors of a Ray cluster, and the settings with which it was joined."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from umbel.data.federation import Federation
from umbel.summary import in_short

STARTS = 5
"""Number of times in a row that an actor may be lost while it makes its engine."""


@dataclass
class Task:
    """Chunks for one actor, all of one machine's clients if there are enough."""

    chunks: list[Tensor]
    home: int  # the slice of its first client
    attempts: int = 0

    __repr__ = in_short


@dataclass
class Member:
    """An actor and where it is; None while it waits for a core, is lost, or is not wanted."""

    actor: Any = None
    machine: str | None = None
    asked: Any = None  # where the answer to what it was last asked will be
    again: float = 0.0  # when it may be asked where it is, by the clock of this process
    lost: int = 0  # how often in a row while it made its engine


def placed(homes: Sequence[str], machines: Collection[str]) -> list[str]:
    """The machine of each slice, one of these: those that were elsewhere are dealt out in turn."""
    names = sorted(machines)
    return [home if home in machines else names[n % len(names)] for n, home in enumerate(homes)]


def never_start(members: Sequence[Member]) -> bool:
    """Return True if no actor works, and all that began were lost while they made their engine."""
    lost = [member.lost for member in members if member.lost]
    return bool(lost) and min(lost) >= STARTS and not any(each.machine for each in members)


def why_nobody(members: Sequence[Member]) -> str:
    """Return the likely reason why no actor works."""
    if any(member.lost for member in members):
        return (
            "actors of the Ray cluster are lost while they make the network, and others are started"
        )
    return (
        "waiting for a free core of the Ray cluster: another program, or another run, uses them all"
    )


@dataclass(frozen=True)
class Origin:
    """The arguments with which a cluster was joined."""

    federation: Federation
    address: str
    workers: int | None

    __repr__ = in_short
