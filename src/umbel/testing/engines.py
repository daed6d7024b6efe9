"""Engines that wrap another one, to lose or shuffle replies or to note what clients are asked."""

from __future__ import annotations

import numpy as np
import torch

from umbel.flow import Engine, Replies, Request


class Listening:
    """An engine that notes what clients are asked; request number `silent` gets no reply."""

    def __init__(self, engine: Engine, silent: int = -1) -> None:
        self.engine, self.silent, self.asked, self.updated = engine, silent, 0, False

    def send(self, request: Request) -> Replies:
        """Have the clients do the work, except for the silent request."""
        self.asked += 1
        nobody = torch.zeros(0, dtype=torch.long)
        silent = self.asked - 1 == self.silent
        replies = self.engine.send(request.pick(nobody) if silent else request)
        self.updated |= "update" in replies.columns
        return replies


class Losing:
    """An engine that loses one reply to each request, each time that of the next client."""

    def __init__(self, engine: Engine, first: int = 0) -> None:
        self.engine, self.turn = engine, first

    def send(self, request: Request) -> Replies:
        """Have the other clients do the work."""
        everyone = torch.arange(len(request.clients))
        lost = self.turn % max(1, len(everyone))
        self.turn += 1
        return self.engine.send(request.pick(everyone[everyone != lost]))


class Shuffled:
    """An engine whose replies come in any order."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.rng = engine, np.random.default_rng(0)

    def send(self, request: Request) -> Replies:
        """Have the clients do the work, and shuffle their replies."""
        replies = self.engine.send(request)
        return replies.pick(torch.from_numpy(self.rng.permutation(len(replies.clients))))
