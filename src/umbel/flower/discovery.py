"""Who is there: nodes say which clients they have before they are asked to work."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from umbel.flower import messages
from umbel.flower.arrays import RefusedError
from umbel.flower.exchange import HELLO, POLL_SECONDS, Reply
from umbel.flower.registry import some

log = logging.getLogger(__name__)


@dataclass
class Meeting:
    """The nodes that said who their clients are.

    Nobody is waited for: a node that is busy, or comes later, is met when it has answered.
    """

    grid: Grid
    time_limit: float  # seconds; a greeting that is not answered by then is said again
    form: messages.Form | None = None  # what all have in common: given, or that of the first
    sites: dict[int, messages.Site] = field(default_factory=dict)  # by node
    left_out: set[int] = field(default_factory=set)  # nodes that do not fit the others
    greeted: dict[str, tuple[int, float]] = field(default_factory=dict)  # message: node, until when

    def online(self) -> set[int]:
        """The nodes that are connected."""
        return set(self.grid.get_node_ids())

    def look_around(self, roll: Collection[str] | None = None) -> dict[str, int]:
        """Greet nodes that are new; the clients of those that answered since, and their nodes.

        Only clients on the roll count; without a roll everyone does.
        """
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
            if sent is not None:
                found |= dict.fromkeys(self._meet(sent[0], Reply.of(reply), roll), sent[0])
        return found

    def gather(
        self, wanted: int, patience: float, roll: Collection[str] | None = None
    ) -> dict[str, int]:
        """Wait until so many clients are there, or for so many seconds; the node of each."""
        nodes = self.look_around(roll)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and not (wanted and len(nodes) >= wanted):
            time.sleep(POLL_SECONDS)
            nodes |= self.look_around(roll)
        return nodes

    def _meet(self, node: int, reply: Reply, roll: Collection[str] | None) -> list[str]:
        """The clients of a node that are on the roll, none if it does not fit the others."""
        if reply.missing is not None:
            return []  # it is greeted again
        try:
            if reply.content is None:
                raise RefusedError(str(reply.error))
            site = messages.site_in(reply.content)
            self.form = self.form or site.form
            if site.form != self.form:
                raise RefusedError(f"{site.form} is not {self.form}, as at the other sites")
        except RefusedError as error:
            log.warning("node %d is left out: %s", node, error)
            self.left_out.add(node)
            return []
        self.sites[node] = site
        late = [] if roll is None else [name for name in site.clients if name not in roll]
        if late:
            log.warning(
                "node %d came after the run began: %s no part of it; a new run would take them in",
                node,
                some(late),
            )
        return [name for name in site.clients if name not in late]
