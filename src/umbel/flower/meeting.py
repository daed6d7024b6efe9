"""Who is there: nodes say which clients they have before they are asked to work."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from flwr.app import RecordDict
from flwr.serverapp import Grid

from umbel.flower import wire
from umbel.flower.exchange import HELLO, Reply, exchange

log = logging.getLogger(__name__)


@dataclass
class Meeting:
    """The sites that said who they are."""

    grid: Grid
    form: wire.Form | None = None  # what all have in common: given, or that of the first
    sites: dict[int, wire.Site] = field(default_factory=dict)  # by node

    def online(self) -> set[int]:
        """The nodes that are connected."""
        return set(self.grid.get_node_ids())

    def meet(self, nodes: Iterable[int], time_limit: float) -> dict[str, int]:
        """Ask these nodes who their clients are: the node of each client."""
        hello = {node: (HELLO, RecordDict()) for node in nodes}
        found: dict[str, int] = {}
        for node, reply in exchange(self.grid, hello, time_limit).items():
            try:
                self.sites[node] = self._site(reply)
            except wire.RefusedError as error:
                log.warning("node %d is left out: %s", node, error)
                continue
            found |= dict.fromkeys(self.sites[node].clients, node)
        return found

    def gather(self, wanted: int, patience: float, time_limit: float) -> dict[str, int]:
        """Wait until so many clients are there, or for so many seconds; the node of each."""
        nodes: dict[str, int] = {}
        asked: set[int] = set()
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and not (wanted and len(nodes) >= wanted):
            new = self.online() - asked
            asked |= new
            if new:
                nodes |= self.meet(sorted(new), time_limit)
            else:
                time.sleep(0.2)
        return nodes

    def _site(self, reply: Reply) -> wire.Site:
        if reply.content is None:
            raise wire.RefusedError(reply.error or "it did not answer in time")
        site = wire.site_in(reply.content)
        self.form = self.form or site.form
        if site.form != self.form:
            raise wire.RefusedError(f"{site.form} is not {self.form}, as at the other sites")
        return site
