"""Clipping and noise, where clients work: what leaves them is private already."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from umbel.checks import UsageError
from umbel.engines.privacy import Privacy
from umbel.engines.validation import promises
from umbel.flow import Engine, Replies, Request
from umbel.seeds import Stream, seed_of

log = logging.getLogger(__name__)

PROTECTED = {"update", "num_examples"}

NoiseSeeds = Callable[[Request], Sequence[int]]
"""Gives the seed of each client's noise.

Deployed nodes mix in a secret that the server does not know.
"""


def simulated_noise(request: Request) -> list[int]:
    """A function of the run's seed, as all randomness of a simulation: no secret at all."""
    return [seed_of(seed, Stream.NOISE) for seed in request.seeds]


@dataclass
class Private:
    """An engine whose clients send clipped and noised updates, and no number of examples.

    Only works whose replies are updates can be protected so; what evaluation says of test
    and validation examples is not protected. Raises `UsageError` for any other work.
    """

    engine: Engine
    privacy: Privacy
    noise_seeds: NoiseSeeds = simulated_noise
    cohort: int = 0  # clients whose updates are averaged; 0: unknown, as at one node of several
    warned: bool = False

    def send(self, request: Request) -> Replies:
        if request.work.split != "train":
            return self.engine.send(request)
        unprotected = sorted(set(promises(request)) - PROTECTED)
        if unprotected:
            raise UsageError(
                f"privacy.clip: {self.privacy.clip!r} is not for this method: its clients send "
                f"{', '.join(unprotected)}, which noise on updates does not protect"
            )
        seeds = dict(zip(request.clients.tolist(), self.noise_seeds(request), strict=True))
        replies = self.engine.send(request)
        update = replies.columns["update"].clone()
        self._warn(update)
        for row, client in zip(update, replies.clients.tolist(), strict=True):
            row.copy_(released(row, self.privacy, seeds[client]))
        columns = {**replies.columns, "update": update}
        columns["num_examples"] = torch.ones_like(columns["num_examples"])
        return replace(replies, columns=columns)

    def _warn(self, updates: Tensor) -> None:
        """Say it, once, where the noise drowns the updates (N, P)."""
        if self.warned or not self.cohort or not len(updates):
            return
        assert self.privacy.clip is not None
        typical = updates.double().norm(dim=1).clamp(max=self.privacy.clip).median()
        message = self.privacy.drowned(updates.shape[1], self.cohort, float(typical))
        if message is not None:
            log.warning(message)
            self.warned = True


def released(update: Tensor, privacy: Privacy, seed: int) -> Tensor:
    """The update (P,), clipped and with noise."""
    assert privacy.clip is not None
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(update.shape, generator=generator, dtype=torch.float64)
    length = update.double().norm()
    clipped = update.double() * (privacy.clip / length.clamp(min=privacy.clip))
    noised: Tensor = clipped + privacy.noise_multiplier * privacy.clip * noise
    return noised.to(update.dtype)
