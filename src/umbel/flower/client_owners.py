"""Owners: a client's name belongs to the node that first brought it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from umbel.files.atomic import write_text
from umbel.files.seals import json_text, json_value

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo  # not a public name

MOST_NOTED = 1000
"""Largest number of nodes with noted refusals, and with noted names."""


def connected(nodes: Iterable[NodeInfo]) -> dict[int, str]:
    """The identity of each of these nodes: the key with which it signs its requests.

    Simulated nodes have no keys; their numbers identify them.
    """
    return {node.node_id: identity(node.node_id, node.public_key) for node in nodes}


def identity(node: int, public_key: bytes) -> str:
    """A name for the public key of a node, or for one without a key its number."""
    return f"key {hashlib.sha256(public_key).hexdigest()}" if public_key else f"node {node}"


Notes = Literal["refused", "names", "versions"]

FIELDS, OPTIONAL = ("clients", "refused", "names", "versions"), ("names", "versions")
"""Fields of the file; those of `OPTIONAL` only if they are not empty."""


@dataclass
class Owners:
    """The owner of each client, reasons of refused nodes, and nodes' names and versions.

    Once it is kept in a file of the run, changes are written there.
    """

    file: Path | None = None
    # seconds after which clients of a disconnected node are free for others
    release_after: float = 60.0
    clients: dict[str, str] = field(default_factory=dict)  # the owner of each
    refused: dict[str, str] = field(default_factory=dict)  # why, by node
    names: dict[str, str] = field(default_factory=dict)  # what nodes call themselves
    versions: dict[str, str] = field(default_factory=dict)  # of umbel and others, by node
    gone: dict[str, float] = field(default_factory=dict)  # owners, and since when
    known: set[str] = field(default_factory=set)  # who is connected, or owns a client
    # those of `refused`, `names` and `versions` that have no more room until the next look
    full: set[str] = field(default_factory=set)
    written: str = ""

    @classmethod
    def read(cls, file: Path, release_after: float) -> Owners:
        """Read the file; without one nobody owns a client. Raises `UsageError` if it is damaged."""
        read: list[dict[str, str]] | None = json_value(file, lambda table: [*_noted(table)])
        return cls(None, release_after, *(read or ({}, {}, {}, {})))

    def keep(self, file: Path) -> None:
        """Write this file, now and whenever `write` is called."""
        self.file, self.written = file, ""
        self.write()

    def write(self) -> None:
        """Write the file that `read` reads, if anything has changed."""
        table = {name: getattr(self, name) for name in FIELDS}
        text = json_text(
            {name: held for name, held in table.items() if held or name not in OPTIONAL}
        )
        if self.file is not None and text != self.written:
            write_text(self.file, text)
            self.written = text

    def copy(self) -> Owners:
        """A copy without a file, to try claims of names."""
        return replace(self, file=None, clients=dict(self.clients), gone=dict(self.gone))

    def see(self, here: Collection[str]) -> None:
        """Note the connected nodes, and the time since which other owners are absent."""
        now, owners = time.monotonic(), set(self.clients.values())
        self.gone = {owner: self.gone.get(owner, now) for owner in owners - set(here)}
        self.known, self.full = owners | set(here), set()

    def claim(self, who: str, clients: Iterable[str]) -> list[str]:
        """Make a node the owner of those clients that are free; return those that others own."""
        now = time.monotonic()
        taken = []
        for client in clients:
            # Without an owner, the claim succeeds. An owner that is connected has `gone` at
            # infinity.
            owner = self.clients.get(client, who)
            if owner == who or now - self.gone.get(owner, inf) >= self.release_after:
                self.clients[client] = who
            else:
                taken.append(client)
        return taken

    def note(self, what: Notes, who: str, said: str) -> bool:
        """Note why a node was refused, what it calls itself, or its versions.

        Returns False if the same was noted already, or if too many connected nodes are noted to
        note one more: the log would repeat at each look what is not noted.
        """
        noted: dict[str, str] = getattr(self, what)
        if noted.get(who) == said:
            return False
        # Looked through once a look: many nodes may ask for room.
        if who not in noted and len(noted) >= MOST_NOTED and what not in self.full:
            for each in noted.keys() - self.known:
                del noted[each]
            if len(noted) >= MOST_NOTED:
                self.full.add(what)
        if who not in noted and len(noted) >= MOST_NOTED:
            return False
        noted[who] = said
        return True


def _noted(table: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the tables of a file in the order of `FIELDS`."""
    for name in FIELDS:
        held = table.get(name, {}) if name in OPTIONAL else table[name]
        yield {str(key): str(value) for key, value in held.items()}


@dataclass
class Precedence:
    """The order in which nodes brought names: the first to bring a name has a claim to it."""

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
        """Return the node of each client, and for each node the names that belong to others."""
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
