"""Discovery: nodes say which clients they have before they are asked to work."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from flwr.app import Message
from flwr.serverapp import Grid

from umbel.checks import UsageError
from umbel.data.conventions import Comparison, Entry
from umbel.flower.client_owners import Owners, Precedence, connected, identity
from umbel.flower.errors import RefusedError, reason
from umbel.flower.exchange import HELLO, Reply, nodes_of, pause, pulled, pushed
from umbel.flower.handshake import Site, SiteForm, greet, name_in, site_in, versions_in
from umbel.flower.majority import (
    check_alike,
    check_table,
    differences,
    fits,
    leading_form,
    leading_table,
)
from umbel.flower.registry import named_clients
from umbel.summary import few
from umbel.version import ONE_RELEASE, differing

log = logging.getLogger(__name__)


def any_form(form: SiteForm) -> SiteForm:
    """Accept any form: sites need only have the same one."""
    return form


MOST_DOUBLINGS = 60
"""Number of times that the interval between greetings is doubled at most."""


LONGEST_IDENTITY = 16
"""Characters of a node's identity, which may be a long key, that messages show."""

CLAIMED = " another node's, which brought the name first"
"""End of the reason noted for a node that claims clients of other nodes."""


@dataclass
class Meeting:
    """The nodes that have named their clients.

    Slow nodes do not block others: a node that is busy or connects later is added when it answers.
    """

    grid: Grid
    time_limit: float  # seconds after which an unanswered greeting is sent again
    form: SiteForm | None = None  # the form that all sites share, once it is decided
    #: returns a form in the version that is compared; raises `RefusedError` for an unfit one
    expect: Callable[[SiteForm], SiteForm] = any_form
    owners: Owners = field(default_factory=Owners)
    grouped: bool = False  # whether clients must have planted groups
    open: bool = False  # whether clients may come after the run began
    # how inputs are written at the nodes with which the run has begun, in this process
    scales: Sequence[Entry] = ()
    # the meaning that tables must have, once most sites with a table have decided it; None: as none
    # was that of most, no table is used
    inputs: str | None = ""
    sites: dict[int, Site] = field(default_factory=dict)  # by node
    precedence: Precedence = field(default_factory=Precedence)
    called: dict[int, str] = field(default_factory=dict)  # what nodes call themselves
    left_out: set[int] = field(default_factory=set)  # nodes that are not asked anything
    failing: set[int] = field(default_factory=set)  # those of them whose fault may be temporary
    away: set[int] = field(default_factory=set)  # nodes that were greeted and then disconnected
    connections: dict[int, str] = field(default_factory=dict)  # when each has connected last
    # nodes that have come back, and have not said since which clients they have
    back: set[int] = field(default_factory=set)
    # client of another node -> the node that claims it
    taken: dict[str, int] = field(default_factory=dict)
    took: dict[int, float] = field(default_factory=dict)  # seconds to answer a greeting, by node
    # message -> its node, and until when to wait
    greeted: dict[str, tuple[int, float]] = field(default_factory=dict)
    # node -> number of greetings, and when to send the next
    greetings: dict[int, tuple[int, float]] = field(default_factory=dict)

    def look_around(self, roll: Collection[str] | None = None) -> dict[str, int]:
        """Greet new nodes, and return the clients of those that have answered, with their nodes.

        Only clients on the roll, the list of the run's clients, count; without a roll all clients
        do.
        """
        nodes = nodes_of(self.grid, self.time_limit)
        online = connected(nodes)
        self._note_who_is_back({node.node_id: node.last_activated_at for node in nodes})
        roll = None if roll is None else set(roll)
        self.owners.see(online.values())
        self._greet(online)
        # Answers to greetings of earlier looks count, too: nothing here waits for a slow node.
        for name, reply in pulled(self.grid, self.greeted):
            node, until = self.greeted.pop(name)
            if reply.content is not None:
                self.took[node] = time.monotonic() - (until - self.time_limit)
            self._meet(node, reply, online, roll)
        # Until the form is decided, claims of names are not final.
        owners = self.owners.copy() if self.form is None else self.owners
        places, taken = self.precedence.claims(self._fitting(online), owners, online, roll)
        if self.form is not None:
            self._note(taken, online)
            self.taken = {name: node for node, names in taken.items() for name in names}
        return places

    def gather(
        self,
        wanted: int,
        patience: float,
        roll: Collection[str] | None = None,
        enough: Collection[str] = (),
    ) -> dict[str, int]:
        """Wait for a number of clients, or until a time is up, and return the node of each.

        The wait goes on while connected nodes owe the answer to their greeting, as on a busy
        machine; see `_owing`. It ends before its time if all clients of `enough` are there and no
        node owes an answer. If clients belong to a disconnected node, the wait is extended until
        their release.

        If no form was decided before, the form of most nodes becomes the run's. Raises `UsageError`
        for a tie.
        """
        nodes, waits, waits_for = self.look_around(roll), False, set[int]()
        began = time.monotonic()
        while not (wanted and len(nodes) >= wanted):
            passed = time.monotonic() - began
            # Time is up, or all clients that can be expected are there: wait only for answers under
            # way.
            if passed >= patience or (enough and set(enough) <= nodes.keys()):
                owing = self._owing(patience) if passed < patience + self.time_limit else set()
                if not owing and passed >= self._release():
                    break
                if passed >= patience and owing - waits_for:
                    log.info("waiting on for nodes at work on their greeting: %s", self.few(owing))
                    waits_for |= owing
                if not owing and not waits:
                    log.info(
                        "waiting until the clients of a disconnected node are free for other nodes"
                    )
                    waits = True
            pause(began)
            nodes = self.look_around(roll)
        self._settle()
        return self.look_around(roll)

    def _owing(self, patience: float) -> set[int]:
        """Return the connected nodes that may still be at work on their first greeting.

        A node has three times as long as the slowest that has answered, and `patience` at least. If
        none has answered, it has the whole time limit.
        """
        # Sent at until - time_limit, a greeting is owed for `most` seconds.
        most = max(patience, 3 * max(self.took.values())) if self.took else self.time_limit
        latest = time.monotonic() + self.time_limit - min(most, self.time_limit)
        first = {node for node, (count, _) in self.greetings.items() if count == 1}
        return first & {node for node, until in self.greeted.values() if until > latest}

    def few(self, nodes: Collection[int]) -> str:
        """The first of these nodes, as messages name them, and how many more there are."""
        return few([self.named(node) for node in sorted(nodes)])

    def _release(self) -> float:
        """Return the seconds after which clients of a disconnected node are free for others.

        It is 0 if no node claims such clients, or if they are never free.
        """
        owners = {self.owners.clients.get(name) for name in self.taken}
        waits = bool(owners & self.owners.gone.keys()) and self.owners.release_after < inf
        return self.owners.release_after if waits else 0.0

    def named(self, node: int) -> str:
        """A node in messages: by its number, and as it calls itself."""
        return f"node {self._number(node)}"

    def _number(self, node: int) -> str:
        return f"{node} ({self.called[node]!r})" if node in self.called else str(node)

    def owner_named(self, client: str) -> str:
        """The node that brought a client, whether it is connected or not, as `named`."""
        who = self.owners.clients.get(client, "its node")
        name = self.owners.names.get(who)
        known = who if len(who) <= LONGEST_IDENTITY else f"{who[:LONGEST_IDENTITY]}..."
        return known if name is None else f"{known} ({name!r})"

    def slowness(self, node: int, time_limit: float) -> str:
        """Return advice if the node's greeting took so long that its work exceeds a time limit."""
        took = self.took.get(node, 0.0)
        if 2 * took < time_limit:
            return ""
        return f"; its greeting took {took:.0f} s, so set a larger time-limit"

    def silent(self) -> set[int]:
        """Return the connected nodes that have not named their clients yet."""
        return {*connected(nodes_of(self.grid, self.time_limit))} - {*self.sites, *self.left_out}

    def _greet(self, online: Collection[int]) -> None:
        """Greet new nodes, and those that gave no usable answer or have come back, again.

        A greeting that failed, as Flower or the node itself says, is repeated after 1, 2, 4, ...
        seconds. The interval grows up to `time_limit` seconds. A greeting without any answer is
        repeated after `time_limit` only, because the node may just be slow. A node that comes back
        may have been started with other clients.
        """
        now = time.monotonic()
        self.greeted = {name: sent for name, sent in self.greeted.items() if sent[1] > now}
        asked = {node for node, _ in self.greeted.values()}
        known = asked | ((self.sites.keys() | (self.left_out - self.failing)) - self.back)
        count = {node: self.greetings.get(node, (0, now)) for node in sorted({*online} - known)}
        due = [node for node, (_, when) in count.items() if when <= now]
        messages = [Message(greet(), node, HELLO, ttl=self.time_limit) for node in due]
        for name, node in zip(pushed(self.grid, messages, self.time_limit), due, strict=True):
            so_far = count[node][0]
            # 1, 2, 4, ... seconds: a node that can't answer must not be flooded by greetings.
            wait = min(2.0 ** min(so_far, MOST_DOUBLINGS), self.time_limit)
            self.greetings[node] = so_far + 1, now + wait
            if name:
                self.greeted[name] = node, now + self.time_limit

    def _note_who_is_back(self, online: Mapping[int, str]) -> None:
        """Note the nodes that have been away since they were greeted, and ask them anew.

        `online` has the time of each node's last connection, "" if it is not known.
        """
        # Nodes that have been heard of or greeted: only these can come back.
        known = {node for node, _ in self.greeted.values()} | self.sites.keys() | self.left_out
        # The absence of some is seen; others were away between two looks.
        again = {n for n, when in online.items() if self.connections.get(n, when) != when}
        back = known & ((self.away & online.keys()) | again)
        self.away = (self.away | (known - online.keys())) - back
        self.back |= back
        self.connections |= online
        # The process that got the greeting may have ended without an answer.
        self.greeted = {name: sent for name, sent in self.greeted.items() if sent[0] not in back}

    def _meet(
        self, node: int, reply: Reply, online: Mapping[int, str], roll: Collection[str] | None
    ) -> None:
        """Note the clients of a node, or leave the node out if it is unfit."""
        if reply.missing is not None:
            return  # it is greeted again
        self.back.discard(node)
        before = self.sites.get(node)
        try:
            if reply.content is None:
                raise RefusedError(str(reply.error))
            if name := name_in(reply.content):
                self.called[node] = name
                self.owners.note("names", _who(node, online), name)
            self._note_versions(node, online, versions_in(reply.content))
            # From here on, each check may raise: the node is left out, and the others go on.
            site = site_in(reply.content)
            site = replace(site, form=self.expect(site.form))
            check_alike(site, self.form)
            check_table(site.inputs, self.inputs)
            self._check_written(node, site)
            if self.grouped and site.groups is None:
                raise RefusedError("it tells no planted groups, which the method needs")
        except RefusedError as error:
            # Its app failed, or it refused: that may pass. An unfit site stays unfit.
            by_itself = reply.content is None or "answer" in reply.content
            if by_itself:
                self.failing.add(node)
            else:
                self.failing.discard(node)
            self._leave_out(node, online, reason(error))
            return
        self._take_in(node, online)
        self.sites[node] = site
        self.precedence.note(node, site.clients)
        self.greetings.pop(node, None)
        # A run that has begun takes no further clients: their data were in no earlier round.
        late = (
            [] if roll is None or self.open else [name for name in site.clients if name not in roll]
        )
        if late and (before is None or before.clients != site.clients):
            log.warning(
                "%s connected after the run began: %s not part of it; a new run would include them",
                self.named(node),
                named_clients(late),
            )

    def _note_versions(
        self, node: int, online: Mapping[int, str], versions: Mapping[str, str]
    ) -> None:
        """Note the releases at a node, and log if its umbel is not that of the server."""
        told = ", ".join(f"{name} {version}" for name, version in versions.items())
        unlike = differing(versions)
        if self.owners.note("versions", _who(node, online), told) and unlike:
            log.warning("%s has %s: %s", self.named(node), unlike, ONE_RELEASE)

    def _leave_out(self, node: int, online: Mapping[int, str], why: str) -> None:
        self.sites.pop(node, None)
        self.precedence.forget(node)
        again = "; it will be asked again" if node in self.failing else ""
        if self.owners.note("refused", _who(node, online), f"left out: {why}"):
            log.warning("%s is left out: %s%s", self.named(node), why, again)
            self.owners.write()
        self.left_out.add(node)

    def _take_in(self, node: int, online: Mapping[int, str]) -> None:
        """If the node was left out before, log that it can work now."""
        if node in self.left_out:
            log.warning("%s can work now", self.named(node))
            self.left_out.discard(node)
            self.owners.refused.pop(_who(node, online), None)

    def _connected(self, online: Collection[int]) -> dict[int, Site]:
        return {node: site for node, site in self.sites.items() if node in online}

    def _fitting(self, online: Collection[int]) -> dict[int, Site]:
        """Return the connected sites that fit the decision, or the majority so far.

        There are none for a tie, which a site that is still to come may end.
        """
        sites, form, inputs = self._connected(online), self.form, self.inputs
        # Nothing is decided yet: count as if it were decided by those that are here now.
        if form is None:
            form = leading_form(sites.values())
            if form is None:
                return {}
            try:
                inputs = leading_table(sites.values(), form)
            except UsageError:
                return {}
        fit = {node: site for node, site in sites.items() if site.form == form}
        return {node: site for node, site in fit.items() if fits(site.inputs, inputs)}

    def _settle(self) -> None:
        """Decide on the form, if there is any. Raises `UsageError` for a tie."""
        online = connected(nodes_of(self.grid, self.time_limit))
        sites = self._connected(online).values()
        forms = {site.form for site in sites}
        begun, self.form = self.form is not None, self.form or leading_form(sites)
        if forms and self.form is None:
            raise UsageError(
                "sites have different forms, and no form is that of most nodes: "
                f"{differences(sites)}; or choose one by the settings input-shape and outputs, "
                "which leaves out the other sites"
            )
        # Once begun, the run keeps the tables that it began with.
        if not begun and self.form is not None:
            self.inputs = leading_table(sites, self.form)
        for node, site in list(self.sites.items()):
            try:
                check_alike(site, self.form)
                check_table(site.inputs, self.inputs)
            except RefusedError as error:
                self._leave_out(node, online, reason(error))
        self._settle_scale(online)

    def _settle_scale(self, online: Mapping[int, str]) -> None:
        """Leave out nodes with inputs on another scale than most; warn about the rest.

        Raises `UsageError` if no scale is that of most nodes.
        """
        told = {self._number(node): node for node, site in self.sites.items() if site.written}
        entries = [
            (who, "", about) for who, node in told.items() if (about := self.sites[node].written)
        ]
        if found := Comparison(entries, "node").conflict():
            odd, why = found
            # Two halves: no scale is that of most.
            if 2 * len(odd) == len(entries):
                raise UsageError(f"{why}; neither is what most nodes have")
            for who, _, _ in odd:
                self._leave_out(told[who], online, why.partition(": ")[2])
            entries = [entry for entry in entries if entry not in odd]
        Comparison(entries, "node").warn()
        self.scales = entries

    def _check_written(self, node: int, site: Site) -> None:
        """Raise `RefusedError` for inputs on another scale than was decided, if any was."""
        if site.written is not None and self.scales:
            newcomer = (self._number(node), "", site.written)
            rest = [entry for entry in self.scales if entry[0] != newcomer[0]]
            if found := Comparison([*rest, newcomer], "node").conflict():
                raise RefusedError(found[1].partition(": ")[2])

    def _note(self, taken: Mapping[int, Sequence[str]], online: Mapping[int, str]) -> None:
        """Log and save which nodes claimed clients of others, and save the owners."""
        for node, who in online.items():
            if node in taken:
                why = named_clients(taken[node]) + CLAIMED
                if self.owners.note("refused", who, why):
                    log.warning("%s: %s", self.named(node), why)
            elif node not in self.left_out and self.owners.refused.get(who, "").endswith(CLAIMED):
                del self.owners.refused[who]  # the names are its own by now
        self.owners.write()


def _who(node: int, online: Mapping[int, str]) -> str:
    """The identity of a node; if it is no longer connected, its number."""
    return online.get(node, identity(node, b""))
