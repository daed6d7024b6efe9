"""Who is there: nodes say which clients they have before they are asked to work."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from umbel.flower import wire
from umbel.flower.arrays import RefusedError
from umbel.flower.exchange import HELLO, POLL_SECONDS

log = logging.getLogger(__name__)


@dataclass
class Meeting:
    """The nodes that said who their clients are.

    Nobody is waited for: a node that is busy, or comes later, is met when it has answered.
    """

    grid: Grid
    time_limit: float  # seconds; a greeting that is not answered by then is said again
    form: wire.Form | None = None  # what all have in common: given, or that of the first
    sites: dict[int, wire.Site] = field(default_factory=dict)  # by node
    left_out: set[int] = field(default_factory=set)  # nodes that do not fit the others
    greeted: dict[str, tuple[int, float]] = field(default_factory=dict)  # message: node, until when

    def online(self) -> set[int]:
        """The nodes that are connected."""
        return set(self.grid.get_node_ids())

    def look_around(self) -> dict[str, int]:
        """Greet nodes that are new; the clients of those that answered since, and their nodes."""
        now = time.monotonic()
        self.greeted = {name: sent for name, sent in self.greeted.items() if sent[1] > now}
        waiting = {node for node, _ in self.greeted.values()}
        new = sorted(self.online() - set(self.sites) - self.left_out - waiting)
        messages = [Message(RecordDict(), node, HELLO, ttl=self.time_limit) for node in new]
        for name, node in zip(self.grid.push_messages(messages) if new else (), new, strict=True):
            if name:
                self.greeted[name] = node, now + self.time_limit
        found: dict[str, int] = {}
        for reply in self.grid.pull_messages(list(self.greeted)) if self.greeted else ():
            sent = self.greeted.pop(reply.metadata.reply_to_message_id, None)
            if sent is not None and not reply.has_error():
                found |= dict.fromkeys(self._meet(sent[0], reply.content), sent[0])
        return found

    def gather(self, wanted: int, patience: float) -> dict[str, int]:
        """Wait until so many clients are there, or for so many seconds; the node of each."""
        nodes = self.look_around()
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and not (wanted and len(nodes) >= wanted):
            time.sleep(POLL_SECONDS)
            nodes |= self.look_around()
        return nodes

    def _meet(self, node: int, content: RecordDict) -> tuple[str, ...]:
        """The clients of a node, none if it does not fit the others."""
        try:
            site = wire.site_in(content)
            self.form = self.form or site.form
            if site.form != self.form:
                raise RefusedError(f"{site.form} is not {self.form}, as at the other sites")
        except RefusedError as error:
            log.warning("node %d is left out: %s", node, error)
            self.left_out.add(node)
            return ()
        self.sites[node] = site
        return tuple(site.clients)
