"""Clipping and noise at the clients, before an update leaves them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np
import torch
from torch import Tensor

from umbel.checks import UsageError
from umbel.client.constants import digest_of
from umbel.engines.privacy import Privacy
from umbel.engines.replies.validation import assemble, promises
from umbel.flow import Engine, Replies, Request
from umbel.seeds import Stream, seed_of

log = logging.getLogger(__name__)

PROTECTED = {"update", "num_examples"}


@dataclass(frozen=True)
class Granted:
    """The clients that may release an update, each with the key of its noise."""

    keys: Mapping[int, bytes]
    refused: Mapping[int, str] = field(default_factory=dict)  # why the others may not
    # gives final keys, or refusals, once the digest of each client's update is known
    settle: Callable[[Mapping[int, str]], Granted] | None = field(default=None, compare=False)


Grant = Callable[[Request], Granted]
"""Selects the clients that may release an update.

Deployed nodes mix a secret into the keys that the server does not know, and the update itself: two
updates with the same noise would tell their difference.
"""


def simulated_noise(request: Request) -> Granted:
    """Grant every client its noise, whose key follows from the run's seed and so is no secret.

    If a round asks a client twice, the two answers have different noise.
    """
    again = (request.number,) if request.number else ()
    seeds = (seed_of(seed, Stream.NOISE, *again) for seed in request.seeds)
    return Granted(dict(zip(request.clients.tolist(), map(key_of, seeds), strict=True)))


@dataclass
class Private:
    """An engine whose clients send clipped and noised updates, and no number of examples.

    Only works that reply with updates can be protected. Evaluations on test and validation examples
    pass without protection. Raises `UsageError` for any other work.
    """

    engine: Engine
    privacy: Privacy
    grant: Grant = simulated_noise
    cohort: int = 0  # clients whose updates are averaged; 0: unknown, as at one node of several
    warned: bool = False
    warned_of_divergence: bool = False

    def send(self, request: Request) -> Replies:
        if request.work.split != "train":
            return self.engine.send(request)
        unprotected = sorted(set(promises(request)) - PROTECTED)
        if unprotected:
            raise UsageError(
                f"privacy.clip: {self.privacy.clip!r} is not allowed for this method: its clients "
                f"send {', '.join(unprotected)}, which noise on updates does not protect"
            )
        granted = self.grant(request)
        replies = self._asked(request, granted)
        # A node's noise depends on the update, too, so that its keys are final only now.
        if granted.settle is not None:
            rows = zip(replies.clients.tolist(), replies.columns["update"], strict=True)
            settled = granted.settle({client: digest_of({"": row}) for client, row in rows})
            may = [client in settled.keys for client in replies.clients.tolist()]
            replies = replies.pick(torch.tensor(may, dtype=torch.bool).nonzero()[:, 0])
            granted = replace(settled, refused={**granted.refused, **settled.refused})
        update = replies.columns["update"].clone()
        self._warn(update)
        for row, client in zip(update, replies.clients.tolist(), strict=True):
            row.copy_(released(row, self.privacy, granted.keys[client]))
        columns = {**replies.columns, "update": update}
        # A number of examples would be a second, unprotected release: all clients weigh the same.
        columns["num_examples"] = torch.ones_like(columns["num_examples"])
        return replace(replies, columns=columns, refused={**granted.refused, **replies.refused})

    def _asked(self, request: Request, granted: Granted) -> Replies:
        """Ask the clients that may release an update; the others do no work."""
        if not granted.keys:
            return assemble(request, ())
        if not granted.refused:
            return self.engine.send(request)
        may = [client in granted.keys for client in request.clients.tolist()]
        return self.engine.send(request.pick(torch.tensor(may).nonzero()[:, 0]))

    def _warn(self, updates: Tensor) -> None:
        """Warn, once each, if training diverges and if noise drowns updates (N, P)."""
        assert self.privacy.clip is not None
        lengths = torch.linalg.vector_norm(updates, dim=1, dtype=torch.float64)
        diverged = int((~lengths.isfinite()).sum())
        if diverged and not self.warned_of_divergence:
            log.warning(
                "privacy: training diverged for %d of %d clients: noise without an update is "
                "released for them, which looks like any update; lower learning rates help",
                *(diverged, len(updates)),
            )
            self.warned_of_divergence = True
        if self.warned or not self.cohort or diverged == len(updates):
            return
        # After clipping, a typical update is no longer than `clip`.
        typical = lengths[lengths.isfinite()].clamp(max=self.privacy.clip).median()
        message = self.privacy.drowned(updates.shape[1], self.cohort, float(typical))
        if message is not None:
            log.warning(message)
            self.warned = True


def released(update: Tensor, privacy: Privacy, key: bytes) -> Tensor:
    """Return the update (P,), clipped and with noise: min(1, C / |u|) u + sigma C N(0, 1).

    Noise around zero is released for an update that is not finite: a missing or non-finite reply
    would reveal that this client's examples make training diverge.
    """
    assert privacy.clip is not None
    length = float(torch.linalg.vector_norm(update, dtype=torch.float64))
    if not isfinite(length):
        update, length = torch.zeros_like(update), 0.0
    share = privacy.clip / max(length, privacy.clip)
    deviation = privacy.noise_multiplier * privacy.clip
    noised = torch.empty_like(update)
    for number, noise in enumerate(standard_normal(key, len(update))):
        part = slice(number * BLOCK, (number + 1) * BLOCK)
        noised[part] = update[part].double() * share + deviation * noise
    return noised


BLOCK = 2**16
"""Values that are drawn at a time, so that memory is bounded however large a model is."""


def key_of(seed: int) -> bytes:
    """A key for a simulation, which has no secret but its seed."""
    return hashlib.sha256(seed.to_bytes(8, "big")).digest()


def standard_normal(key: bytes, count: int) -> Iterator[Tensor]:
    """`count` standard normal values, in blocks, double precision: quantiles of SHAKE-256's output.

    PyTorch's own generator uses only 32 bits of its seed, so an attacker who saw some noise could
    try all seeds.
    """
    for number, begin in enumerate(range(0, count, BLOCK)):
        stream = hashlib.shake_256(key + number.to_bytes(8, "big"))
        words = np.frombuffer(stream.digest(8 * min(BLOCK, count - begin)), "<u8")
        # Half a step keeps 52 bits off 0 and 1, whose quantiles are infinite.
        uniform = ((words >> np.uint64(12)) + 0.5) * 2.0**-52
        yield torch.special.ndtri(torch.from_numpy(uniform))
