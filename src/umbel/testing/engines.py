"""Engines around another one that lose or shuffle replies, or note requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from umbel.flow import Engine, Replies, Request


class Listening:
    """An engine that notes requests; request number `silent` gets no reply."""

    def __init__(self, engine: Engine, silent: int = -1) -> None:
        self.engine, self.silent, self.asked, self.updated = engine, silent, 0, False
        self.seeds: list[dict[int, int]] = []  # of each request: client -> seed

    def send(self, request: Request) -> Replies:
        """Have the clients do the work, except for the silent request."""
        self.asked += 1
        self.seeds.append(dict(zip(request.clients.tolist(), request.seeds, strict=True)))
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


class Reversed:
    """An engine that gives its `count` clients the numbers of a federation in reversed order.

    Each client draws as it did under its former number, by the seeds that `Listening` has noted.
    """

    def __init__(self, engine: Engine, count: int, seeds: Sequence[dict[int, int]]) -> None:
        self.engine, self.last, self.seeds = engine, count - 1, seeds

    def send(self, request: Request) -> Replies:
        """Have the clients do the work under their former numbers."""
        former = self.last - request.clients
        known = self.seeds[request.number] if request.number < len(self.seeds) else {}
        drawn = zip(former.tolist(), request.seeds, strict=True)
        seeds = [known.get(client, seed) for client, seed in drawn]
        replies = self.engine.send(replace(request, clients=former, seeds=seeds))
        return replace(replies, clients=self.last - replies.clients)
