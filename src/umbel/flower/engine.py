"""The engine whose clients are on other machines: one message a node, and one answer or none."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import prod
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from umbel.client.work import MEMORY
from umbel.data.federation import Federation
from umbel.engines.replies.validation import assemble, promises
from umbel.flow import Replies, Request
from umbel.flower import messages
from umbel.flower.discovery import Meeting
from umbel.flower.errors import ForgottenError, RefusedError, reason, refusing
from umbel.flower.exchange import WORK, Reply, exchange
from umbel.flower.memory import KEPT, row_digest
from umbel.flower.registry import named_clients
from umbel.run.membership import Attendance
from umbel.summary import counted

log = logging.getLogger(__name__)

Answers: TypeAlias = list[tuple[list[int], dict[str, Tensor]]]

LEFT_OUT = "left out of its node's answer"
"""Reason for a client whose node answered only for other clients of the same request."""

MOST_REASONS = 5
"""Reasons of one answer that are logged: a node's answer may have a reason for each client."""

TAKEN = "brings this client, which another node brought first"


@dataclass
class FlowerEngine:
    """Answers requests through the nodes of a meeting, each with one client or many.

    A node's clients share one message. A client counts as missing if its node is not connected or
    did not answer within `time_limit` seconds. It is refused if its node answered with an error or
    with an unusable reply. Late and repeated answers are ignored.
    """

    meeting: Meeting
    clients: Sequence[str]  # their names: the place is the client's number
    nodes: Mapping[str, int]  # where each client is, as far as that is known
    time_limit: float
    kept: dict[str, list[str]] = field(default_factory=dict)  # digests of what nodes keep
    facts: Sequence[str] = ()  # what told each client's examples from others when the run began
    changed: dict[int, str] = field(default_factory=dict)  # clients with other examples, and how
    # in a run with membership: who is there in each round, and a federation of all that ever were
    attendance: Attendance | None = None
    federation: Federation | None = None
    elsewhere: ClassVar[bool] = True

    def send(self, request: Request) -> Replies:
        # Each request begins with a look: nodes come back, and others bring clients that were
        # missing.
        self.nodes = self.meeting.look_around(self.clients)
        groups: dict[int, list[int]] = {}
        refused: dict[int, str] = {}
        silent: dict[int, str] = {}
        for position, client in enumerate(request.clients.tolist()):
            name = self.clients[client]
            if name in self.nodes:
                groups.setdefault(self.nodes[name], []).append(position)
            # Another node has brought the same name: its examples may be other ones.
            elif name in self.meeting.taken:
                refused[client] = f"{self.meeting.named(self.meeting.taken[name])}: {TAKEN}"
            else:
                silent[client] = f"{self.meeting.owner_named(name)}: not connected"
        answers = self._ask(request, groups, refused, silent, again=True)
        replies = assemble(request, answers)
        if MEMORY in replies.columns:
            for client, row in zip(replies.clients.tolist(), replies.columns[MEMORY], strict=True):
                name = self.clients[client]
                # The node keeps the same rows by the same digests, so that they need not be sent
                # again.
                self.kept[name] = [row_digest(row), *self.kept.get(name, ())][:KEPT]
        refused |= replies.refused
        return Replies(replies.clients, replies.columns, refused, silent=silent)

    def _ask(
        self,
        request: Request,
        groups: Mapping[int, Sequence[int]],
        refused: dict[int, str],
        silent: dict[int, str],
        again: bool,
    ) -> Answers:
        """Return the answers of the clients at these positions, and note why others are lacking.

        A node that has lost its clients' memory is asked `again`, once, with the memory included.
        """
        # One message for each node, with the rows of its own clients alone.
        asked = {node: self._asked(request, at) for node, at in groups.items()}
        contents = {node: (WORK, messages.ask(each)) for node, each in asked.items()}
        answers: Answers = []
        forgetful: dict[int, Sequence[int]] = {}
        for node, reply in exchange(self.meeting.grid, contents, self.time_limit).items():
            clients = request.clients[torch.tensor(groups[node])].tolist()
            if reply.missing is not None:
                why = f"{self.meeting.named(node)}: {reply.missing}"
                why += self.meeting.slowness(node, self.time_limit) if reply.late else ""
                log.warning("%s: %s missing", why, self._named(clients))
                silent |= dict.fromkeys(clients, why)
            try:
                rows, whys = self._rows(request, clients, reply)
                answers += rows
                refused |= self._told(node, whys)
            except RefusedError as error:
                # The node has lost its memory file: it is asked once more, with the rows in the
                # message.
                if again and asked[node].remembered and isinstance(error, ForgottenError):
                    forgetful[node] = groups[node]
                    for client in clients:
                        self.kept.pop(self.clients[client], None)
                    continue
                refused |= self._told(node, dict.fromkeys(clients, reason(error)))
        return answers + (
            self._ask(request, forgetful, refused, silent, False) if forgetful else []
        )

    def tell(self, refused: Mapping[int, str]) -> None:
        """Log the reasons of clients whose replies were read, but are refused.

        `refused` are the reasons of a round, by the client's number.
        """
        found: dict[int, dict[int, str]] = {}
        # Reasons that `_told` has logged begin with the node's name.
        for client, why in refused.items():
            node = self.nodes.get(self.clients[client])
            if node is not None and not why.startswith(f"{self.meeting.named(node)}: "):
                found.setdefault(node, {})[client] = why
        for node, whys in found.items():
            self._told(node, whys)

    def _told(self, node: int, whys: Mapping[int, str]) -> dict[int, str]:
        """Log why clients of a node are refused, and return it with the node, by client.

        Each reason is logged once; many different ones are counted.
        """
        name = self.meeting.named(node)
        alike: dict[str, list[int]] = {}
        for client, why in whys.items():
            alike.setdefault(why, []).append(client)
        first = list(alike)[:MOST_REASONS]
        for why in first:
            log.warning("%s: %s: %s refused", name, why, self._named(alike.pop(why)))
        if alike:
            more, rest = counted(len(alike), "more reason"), [*chain(*alike.values())]
            log.warning("%s: %s: %s refused", name, more, self._named(rest))
        return {client: f"{name}: {why}" for client, why in whys.items()}

    def _asked(self, request: Request, positions: Sequence[int]) -> messages.Asked:
        at = torch.tensor(positions)
        names = [self.clients[client] for client in request.clients[at].tolist()]
        tables, index = {}, {}
        remembered: list[str] = []
        for name, rows in request.each.items():
            if name == MEMORY:
                remembered = self._remembered(names, rows.take(at))
                if remembered:
                    continue
            # Clients of one cluster get the same model, which is in the message once.
            needed, place = torch.unique(rows.index[at], return_inverse=True)
            tables[name], index[name] = rows.table[needed], place.tolist()
        seeds = [request.seeds[n] for n in positions]
        form = self.meeting.form
        return messages.Asked(
            request.work,
            names,
            seeds,
            request.shared,
            tables,
            index,
            remembered,
            "" if form is None else form.frozen,
        )

    def _compare(self, client: int, told: str) -> None:
        """Note and log that a client's examples are not those that it had when the run began."""
        known = self.facts[client] if self.facts else ""
        if known in ("", told):
            self.changed.pop(client, None)
            return
        why = f"its examples have changed: {told}, but when the run began {known}"
        if self.changed.get(client) != why:
            log.warning("client %r: %s", self.clients[client], why)
        self.changed[client] = why

    def _named(self, clients: Sequence[int]) -> str:
        return named_clients([self.clients[client] for client in clients])

    def _remembered(self, names: Sequence[str], rows: Tensor) -> list[str]:
        """Return digests of the clients' memory if their node still keeps exactly these rows."""
        wanted = [row_digest(row) for row in rows]
        kept = all(w in self.kept.get(name, ()) for name, w in zip(names, wanted, strict=True))
        return wanted if kept else []

    @refusing
    def _rows(
        self, request: Request, clients: Sequence[int], reply: Reply
    ) -> tuple[Answers, dict[int, str]]:
        """Return the rows of the clients that answered, and the reason of each that did not.

        Raises `RefusedError` if the reply can't be used.
        """
        if reply.error is not None:
            raise RefusedError(reply.error)
        if reply.content is None:
            return [], {}
        expected = promises(request)
        # Bytes of an honest answer, at most: a larger one is refused before its arrays are read.
        most = sum(8 * prod(promise.shape) for promise in expected.values()) * len(clients)
        answer = messages.answer_in(reply.content, expected, most)
        named = [*answer.clients, *answer.refused]
        number = {self.clients[client]: client for client in clients}
        # A node may not answer for another node's clients, nor twice for its own.
        strangers = [name for name in named if name not in number]
        if strangers or len(set(named)) != len(named):
            found = (strangers or named)[0]
            raise RefusedError(f"client {found!r} was not asked, or is in the answer twice")
        for name, told in answer.facts.items():
            self._compare(number[name], told)
        rows = [number[name] for name in answer.clients], answer.columns
        whys = {number[name]: why for name, why in answer.refused.items()}
        return [rows], whys | {number[name]: LEFT_OUT for name in number.keys() - {*named}}
