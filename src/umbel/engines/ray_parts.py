"""The tasks and the actors of a Ray cluster, and the settings with which it was joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from umbel.data.federation import Federation
from umbel.summary import in_short


@dataclass
class Task:
    """Chunks that one actor computes, all of clients of one machine where there are enough."""

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


@dataclass(frozen=True)
class Origin:
    """The arguments with which a cluster was joined."""

    federation: Federation
    address: str
    workers: int | None

    __repr__ = in_short
