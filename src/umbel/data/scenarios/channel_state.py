"""Clients in different radio environments; models compress channel state matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from umbel.checks import check, check_least, check_memory, nearest
from umbel.data.channels import ENVIRONMENTS, SIDE, Channels, cost2100, generated
from umbel.data.federation import Federation
from umbel.data.partition import equal_groups
from umbel.data.scenarios.base import Scenario, check_apart, check_clients
from umbel.data.sources import Sources
from umbel.seeds import Stream, generator

BYTES = 2 * 4 * 2 * SIDE**2
"""Bytes per matrix: it is in memory twice when the matrices of all clients are joined."""

BYTES_ON_THE_WAY = 64 * SIDE**2
"""Additional bytes per matrix while a client's matrices are generated, path by path."""


@dataclass(frozen=True)
class ChannelState(Scenario):
    """Channel state matrices (2, 32, 32) to be compressed and restored: y = x.

    Kim et al. 2024, F.6: half of the clients are indoors, half outdoors. Each matrix has a mean
    square of 1, so that the mean squared error, which records call loss, is the paper's normalised
    error. The paper uses the 200,000 matrices of COST2100 (`source = "cost2100"`, if the user has
    them): 12,500 per client. By default channels are generated from random paths.
    """

    environments: tuple[str, ...] = ("indoor", "outdoor")  # environment of each group
    source: Literal["generated", "cost2100"] = "generated"  # where the matrices come from
    clients: int = 16  # M, divided equally among the environments
    examples: int = 1000  # a client's
    test_fraction: float = 0.15  # of each client's examples
    validation_fraction: float | None = None  # of what is left for training, for validation

    def __post_init__(self) -> None:
        names = self.environments
        check(bool(names), "environments", names, "a list with at least one name")
        for name in names:
            known = f"known; {nearest(name, ENVIRONMENTS)}"
            check(name in ENVIRONMENTS, "environments", name, known)
        check_clients(self.clients, len(names), "environments")
        check_least(self, 1, "examples")
        check_apart(self.validation_fraction, self.test_fraction)

    def build(self, seed: int, sources: Sources) -> Federation:
        matrices = self.clients * self.examples
        needed = matrices * BYTES + self.examples * BYTES_ON_THE_WAY
        check_memory(needed, f"scenario: {matrices:,} channel matrices")
        counts = equal_groups(self.clients, len(self.environments)).tolist()
        groups = np.repeat(np.arange(len(counts)), counts).tolist()
        where = [self.environments[group] for group in groups]
        x: dict[int, Channels] = {}
        for name in dict.fromkeys(where):  # groups of one environment share its file
            clients = [client for client, there in enumerate(where) if there == name]
            x |= zip(clients, self._of(name, clients, seed, sources), strict=True)
        return Federation.from_arrays(
            [(x[client], x[client]) for client in range(self.clients)],
            groups=groups,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )

    def _of(self, name: str, clients: Sequence[int], seed: int, sources: Sources) -> list[Channels]:
        """The matrices of these clients, which are all that are in this environment."""
        rngs = [generator(seed, Stream.DATA, client, 1) for client in clients]
        if self.source == "generated":
            return [generated(ENVIRONMENTS[name], self.examples, rng) for rng in rngs]
        channels, wanted = cost2100(name, sources), self.examples * len(clients)
        expected = f"few enough: {len(clients)} clients share {len(channels)} channels"
        check(wanted <= len(channels), "examples", self.examples, expected)
        rows = rngs[0].permutation(len(channels))[:wanted]
        return [channels[mine] for mine in rows.reshape(len(clients), self.examples)]
