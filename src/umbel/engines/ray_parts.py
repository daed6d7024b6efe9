"""What a request to a Ray cluster is divided into, who does it, and where all came from."""

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
    """What a cluster was joined for, and where."""

    federation: Federation
    address: str
    workers: int | None

    __repr__ = in_short
