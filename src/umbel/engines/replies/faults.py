"""Faults of clients, simulated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.descent import held
from umbel.engines.replies.validation import assemble
from umbel.flow import Engine, Flow, Layer, Replies, Request, ask
from umbel.seeds import Stream, generator
from umbel.settings import Settings


@dataclass(frozen=True)
class Faults(Settings):
    """Simulated faults of clients: the probability of each of five faults in a round.

    >>> umbel.Faults(drop=0.2, huge=0.01).drop
    0.2

    The fault of a client is drawn once a round, from the run's seed, the round and the client: a
    client that drops out answers no request of that round. Raises `UsageError` unless all are
    probabilities whose sum is at most 1.
    """

    drop: float = 0.0  #: a client never answers
    late: float = 0.0  #: it answers after the round is over
    not_finite: float = 0.0  #: it sends NaN
    wrong_shape: float = 0.0  #: it sends tensors of the wrong shape
    huge: float = 0.0  #: it sends numbers far too large

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check(0 <= value <= 1, name, value, "a probability, in [0, 1]")
        total = round(math.fsum(vars(self).values()), 12)  # 0.2 + 0.4 + 0.3 + 0.1 is more than 1
        together = " + ".join(name for name, value in vars(self).items() if value)
        check(total <= 1, together, total, "a sum of probabilities of at most 1")

    @property
    def any(self) -> bool:
        """True if any fault has a probability above 0."""
        return any(vars(self).values())

    def of(self, seed: int) -> str | None:
        """Return the fault of the client that works under this seed, or None."""
        # One number in [0, 1), divided among the faults; what is left over is no fault.
        drawn = generator(seed, Stream.FAULT).random()
        for name, probability in vars(self).items():
            drawn -= probability
            if drawn < 0:
                return str(name)
        return None

    def spoilt(self, request: Request) -> set[int]:
        """Return the clients whose numbers are replaced by others in this request."""
        if not self.not_finite and not self.huge:
            return set()
        fates = zip(request.clients.tolist(), map(self.of, request.seeds), strict=True)
        return {client for client, fate in fates if fate in ("not_finite", "huge")}


@dataclass
class Faulty(Layer):
    """Makes clients fail, as `faults` says."""

    engine: Engine
    faults: Faults

    def ask(self, request: Request) -> Flow[Replies]:
        fates = [self.faults.of(seed) for seed in request.seeds]
        if not any(fates):
            return (yield from ask(self.engine, request))
        fate_of = dict(zip(request.clients.tolist(), fates, strict=True))
        working = np.flatnonzero([fate != "drop" for fate in fates])
        replies = yield from ask(self.engine, request.pick(torch.from_numpy(working)))
        seen = assemble(request, _answers(replies, fate_of))
        late = {client: "late" for client, fate in fate_of.items() if fate == "late"}
        refused = {**replies.refused, **seen.refused, **late}
        return Replies(seen.clients, seen.columns, refused)


def _answers(
    replies: Replies, fate_of: Mapping[int, str | None]
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    fates = [fate_of[client] for client in replies.clients.tolist()]
    for fate in {*fates} - {"late"}:
        part = replies.pick(torch.tensor([n for n, own in enumerate(fates) if own == fate]))
        rows = {name: _spoilt(column, fate) for name, column in part.columns.items()}
        yield part.clients.tolist(), rows


def _spoilt(value: Tensor, fate: str | None) -> Tensor:
    match fate:
        case "not_finite" if value.is_floating_point():
            return torch.full_like(value, torch.nan)
        case "huge" if value.is_floating_point():
            return torch.full_like(value, held(1e30, value))
        case "wrong_shape":
            return value[:, None]
        case _:
            return value
