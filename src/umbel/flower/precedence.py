"""Precedence: of several nodes that bring a client's name, the first has it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from umbel.flower.client_owners import Owners


@dataclass
class Precedence:
    """When each node brought which names: a node that brings others later comes last for them."""

    # by node, the names that it brings now, by the number of the greeting that first had them
    brought: dict[int, dict[int, list[str]]] = field(default_factory=dict)
    greetings: int = 0

    def note(self, node: int, clients: Iterable[str]) -> None:
        """Note all names that a node brings now; those that it brought before keep their place."""
        before = {n: when for when, names in self.brought.get(node, {}).items() for n in names}
        self.greetings += 1
        self.brought[node] = {}
        for name in clients:
            self.brought[node].setdefault(before.get(name, self.greetings), []).append(name)

    def forget(self, node: int) -> None:
        """Take from a node the places of its names, as it is left out."""
        self.brought.pop(node, None)

    def claims(
        self,
        nodes: Iterable[int],
        owners: Owners,
        online: Mapping[int, str],
        roll: Collection[str] | None,
    ) -> tuple[dict[str, int], dict[int, list[str]]]:
        """The node of each client of these nodes, and by node the names that it may not have."""
        places: dict[str, int] = {}
        taken: dict[int, list[str]] = {}
        claims = [(when, node) for node in nodes for when in self.brought.get(node, ())]
        for when, node in sorted(claims):
            names = [n for n in self.brought[node][when] if roll is None or n in roll]
            refused = set(owners.claim(online[node], names))
            places |= {name: node for name in names if name not in refused}
            if refused:
                taken[node] = sorted({*taken.get(node, ()), *refused})
        return places, taken
