"""The roll of a run: its clients, and the server's knowledge of them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from umbel.checks import check
from umbel.client.objectives import BINARY, CLASSIFICATION, Objective
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.files.seals import json_value
from umbel.flower.handshake import Site, SiteForm
from umbel.summary import few

log = logging.getLogger(__name__)

MOST_NAMED = 5
"""Number of clients whose names a message has, so that it stays one line."""


@dataclass(frozen=True)
class Roll:
    """Numbers of the clients, which stay theirs as long as the run lasts."""

    names: Sequence[str]
    train: Sequence[int]  # examples of each
    test: Sequence[int]
    groups: Sequence[int] | None  # planted, where they are known
    form: SiteForm
    validation: Sequence[int] | None = None  # None: nobody has any
    inputs: str = ""  # what newcomers' tables must be like; "": not told by most nodes
    # an input that all sites have or exceed, if inputs are whole numbers; None: floats, or not told
    largest_input: int | None = None
    # what tables of the run's nodes must be like; "": not decided; None: no table is used
    tables: str | None = ""
    # what told each client's examples from others when the run began; (): not told
    facts: Sequence[str] = ()
    # in a run with membership: how many clients it began with, and the numbers of those that have
    # come and left since, by round
    began: int = 0
    changes: Sequence[tuple[int, Sequence[int], Sequence[int]]] = ()

    @classmethod
    def call(
        cls,
        places: Mapping[str, int],
        sites: Mapping[int, Site],
        named: Callable[[int], str] = "node {}".format,
        tables: str | None = "",
        validated: bool = False,
    ) -> Roll:
        """Number these clients, each at the node of its place, in the order of their names.

        A majority of nodes, not of clients, decides about validation examples, newcomers' tables
        and the range of inputs: one node alone could claim many clients. `named` names a node in
        messages; `tables` is the meaning that the nodes' tables must have. If a run must be
        `validated`, validation examples of few nodes are used, too.
        """
        every = [
            (name, node, n)
            for node, site in sites.items()
            for n, name in enumerate(site.clients)
            if places.get(name) == node
        ]
        # In order of names: the numbers do not depend on which node was first to answer.
        every.sort(key=lambda one: _natural(one[0]))
        taking_part = {node: sites[node] for node in sorted({node for _, node, _ in every})}
        without = [named(node) for node, site in taking_part.items() if site.groups is None]
        groups = None
        if not without:
            groups = [(sites[node].groups or [])[n] for _, node, n in every]
        elif len(without) < len(taking_part):
            log.warning("no planted groups are used, as not all nodes tell them: %s", few(without))
        validation = _validation([(node, n) for _, node, n in every], taking_part, validated)
        inputs = Counter(site.inputs for site in taking_part.values())
        leading, votes = inputs.most_common(1)[0]
        return cls(
            [name for name, _, _ in every],
            [sites[node].train[n] for _, node, n in every],
            [sites[node].test[n] for _, node, n in every],
            groups,
            next(iter(taking_part.values())).form,
            validation,
            leading if 2 * votes > len(taking_part) else "",
            _common_input(taking_part.values()),
            tables,
            _facts_of(every, sites),
            began=len(every),
        )

    def now(self, places: Mapping[str, int], sites: Mapping[int, Site]) -> Roll:
        """The roll with clients that have come since, and with the examples of all as told now."""
        here = Roll.call(places, sites, tables=self.tables)
        known = set(self.names)
        names = [*self.names, *(name for name in here.names if name not in known)]

        def values(what: str, unknown: object) -> Any:
            if getattr(self, what) is None:
                return None
            found: dict[str, object] = {}
            for roll in (self, here):
                found |= zip(roll.names, getattr(roll, what) or (), strict=False)
            return [found.get(name, unknown) for name in names]

        each = {what: values(what, 0) for what in ("train", "test", "groups", "validation")}
        return replace(self, names=names, **each, facts=values("facts", ""))

    @classmethod
    def read(cls, file: Path) -> Roll:
        """Read the roll of a run. Raises `UsageError` for a missing or damaged file."""
        roll = json_value(file, cls.from_plain)
        check(roll is not None, "clients", str(file), "a file")
        assert roll is not None
        return roll

    @classmethod
    def from_plain(cls, table: dict[str, Any]) -> Roll:
        """Read what `plain` has written."""
        form = table.pop("form")
        form["input_shape"] = tuple(form["input_shape"])
        return cls(**table, form=SiteForm(**form))

    @property
    def plain(self) -> dict[str, Any]:
        """The roll as plain values for JSON."""
        return asdict(self)

    def federation(self, objective: Objective = CLASSIFICATION) -> Federation:
        """A federation without examples, which stay at the nodes, for this objective."""
        form = self.form
        y = torch.zeros(1, form.num_outputs)
        if form.num_classes is not None:  # labels; for yes and no, an example may have several
            one = form.num_outputs == 1 or objective != BINARY
            y = torch.zeros((1,) if one else (1, form.num_outputs), dtype=torch.long)

        # All examples are one: its shape and type are what checks of the network need.
        x = torch.zeros(1, *form.input_shape)
        if self.largest_input is not None:
            x = torch.full_like(x, self.largest_input, dtype=torch.long)

        def split(sizes: Sequence[int]) -> Split:
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            return Split(x, y, offsets)

        groups = None if self.groups is None else np.asarray(self.groups, dtype=np.int64)
        return Federation(
            split(self.train),
            split(self.test),
            validation=None if self.validation is None else split(self.validation),
            groups=groups,
            num_classes=form.num_classes,
            names=tuple(self.names),
        )


def _validation(
    every: Sequence[tuple[int, int]], sites: Mapping[int, Site], needed: bool
) -> Sequence[int] | None:
    """Validation examples of each client, by node and place there; None if most nodes have none.

    A node has some if half of its clients do. If half of the nodes have some, the number of clients
    decides. If they are `needed`, they are used however few nodes have them.
    """
    told = {node: site.validation for node, site in sites.items()}
    # (M,) validation examples of each client, 0 where its node has none.
    held = [0 if (counts := told[node]) is None else counts[n] for node, n in every]
    clients = Counter(node for node, _ in every)
    having = Counter(node for (node, _), count in zip(every, held, strict=True) if count)
    nodes = sum(2 * having[node] >= clients[node] for node in clients)
    most = 2 * nodes > len(clients)
    if 2 * nodes == len(clients):
        most = 2 * having.total() >= len(every)
    if having and not most:
        log.warning(
            "%d of %d nodes say that half of their clients or more have validation examples: %s",
            nodes,
            len(clients),
            "rounds are judged on these alone, because clients choose their own models by them"
            if needed
            else "rounds are judged on test examples, because too few have others",
        )
    return held if having and (most or needed) else None


def _facts_of(every: Sequence[tuple[str, int, int]], sites: Mapping[int, Site]) -> Sequence[str]:
    """Return the facts about each client's examples, "" if unknown; () if all are unknown."""
    told = [sites[node].facts[n] if sites[node].facts else "" for _, node, n in every]
    return told if any(told) else ()


def _common_input(sites: Collection[Site]) -> int | None:
    """Return a whole number that may be an input at every site; None if most have floats.

    It is the smallest of the largest inputs: a site that claims too much must not lead to trial
    inputs that no model takes.
    """
    told = [site.largest_input for site in sites if site.largest_input is not None]
    return min(told) if 2 * len(told) > len(sites) else None


def named_clients(names: Sequence[str]) -> str:
    """The first of these clients by name, and how many more there are, with their verb."""
    first = ", ".join(map(repr, names[:MOST_NAMED]))
    if len(names) == 1:
        return f"client {first} is"
    more = len(names) - MOST_NAMED
    return f"clients {first}" + f" and {more} more" * (more > 0) + " are"


def _natural(name: str) -> tuple[bool, int, str]:
    """Numbers first, in their order, then words."""
    return not name.isdecimal(), int(name) if name.isdecimal() else 0, name
