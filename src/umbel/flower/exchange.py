"""Send one message to each of several nodes, and collect the replies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

import httpx
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from umbel.flower.errors import IN_THE_LOG, plain_beginning, reason

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo  # not a public name

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 20.0
"""Seconds between the first two calls, and between later ones at most."""

PATIENCE = 120.0
"""Seconds after a first failure in which a call is repeated, at most."""


def patiently(call: Callable[[], T], time_limit: float = PATIENCE) -> T:
    """Make a call that may be made several times, and return its result.

    If the SuperLink fails for a moment, the call is repeated after 1, 2, 4, ... seconds. Raises the
    last error once `time_limit` seconds, or `PATIENCE`, have passed since the first, and any other
    error at once.
    """
    until, wait = None, FIRST_PAUSE
    while True:
        try:
            return call()
        except Exception as error:
            now = time.monotonic()
            if not may_pass(error) or (until is not None and now >= until):
                raise
            if until is None:
                most = min(time_limit, PATIENCE)
                until = now + most
                log.warning(
                    "the SuperLink fails, and is asked again for %g s: %s", most, reason(error)
                )
        time.sleep(min(wait, until - now))
        wait = min(2 * wait, LONGEST_PAUSE)


def may_pass(error: Exception) -> bool:
    """Return True for an error that may be gone a moment later."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.is_server_error
    # Flower's name for a part of a message that could not be stored is not public.
    lost = type(error).__name__ == "ObjectPushError"
    return lost or isinstance(error, OSError | httpx.TransportError)


WORK, HELLO = "query.work", "query.hello"
"""The kinds of messages."""

PAUSES = 0.02, 0.5
"""Seconds between two looks for replies: at least and at most."""

WITHOUT_ANSWER = {
    3: "the SuperLink does not have the message or the answer any more",
    4: "the SuperLink does not have the answer any more",
    5: "it has disconnected, or has given no sign of life for a minute",
    8: "its process died at work, as if memory was short; its log says more",
}
"""Codes of errors that stand for an answer that never came, with the reasons for the user.

The others are answers: the node could not load its app, or the app raised an error.
"""

EXPIRED, NEARLY = (3, 4), 0.9
"""Codes of expired messages, and the share of the time limit that counts as all of it."""

ASTRAY = "it says that it answers another message"

NOT_TAKEN = (
    "the SuperLink took no message for it: it has just disconnected, or the messages of this "
    "request are too large for the SuperLink"
)


@dataclass(frozen=True)
class Reply:
    """Content of a reply, an error at the node, or why no answer came."""

    content: RecordDict | None = None
    error: str | None = None
    missing: str | None = None
    late: bool = False  # whether it is missing because time was up

    @classmethod
    def of(cls, message: Message) -> Reply:
        """Return the reply that a message is: content, an error, or the absence of both."""
        if not message.has_error():
            return cls(message.content)
        code = int(message.error.code)
        if code in WITHOUT_ANSWER:
            return cls(missing=WITHOUT_ANSWER[code], late=code in EXPIRED)
        said = f"error {code}: {plain_beginning(f'{message.error.reason}')}"
        return cls(error=f"{said}{IN_THE_LOG}")

    def in_time(self, waited: float, time_limit: float) -> Reply:
        """Return this reply after a wait, with the time limit as its reason if it has expired.

        Flower itself only says that the message is gone, and its node may have been removed.
        """
        expired = self.late and waited >= NEARLY * time_limit
        return no_answer(time_limit) if expired else replace(self, late=False)


def exchange(
    grid: Grid, contents: Mapping[int, tuple[str, RecordDict]], time_limit: float
) -> dict[int, Reply]:
    """Send each node a message, and return the replies within a number of seconds.

    Replies are matched by the message that they answer, as errors come from the SuperLink and not
    from the failed node. Replies to older messages, and second replies, are ignored.
    """
    nodes = list(contents)
    messages = [Message(contents[n][1], n, contents[n][0], ttl=time_limit) for n in nodes]
    began = time.monotonic()
    names = pushed(grid, messages, time_limit)
    waiting = {name: node for name, node in zip(names, nodes, strict=True) if name}
    found = dict.fromkeys(nodes, Reply(missing=NOT_TAKEN))
    found |= dict.fromkeys(waiting.values(), no_answer(time_limit))
    while waiting:
        for name, reply in pulled(grid, waiting):
            waited = time.monotonic() - began
            found[waiting.pop(name)] = reply.in_time(waited, time_limit)
        # A last look came after the time was up: replies that were in time are not lost.
        if time.monotonic() >= began + time_limit:
            break
        if waiting:
            pause(began)
    return found


def no_answer(time_limit: float) -> Reply:
    """The reply of a node that was silent for so long."""
    return Reply(missing=f"no answer within time-limit ({time_limit:g} s)", late=True)


def nodes_of(grid: Grid, time_limit: float) -> list[NodeInfo]:
    """Return the connected nodes; ask again if the SuperLink fails for a moment."""
    return patiently(lambda: [*grid.get_nodes()], time_limit)


def pushed(grid: Grid, messages: Sequence[Message], time_limit: float) -> list[str]:
    """Push messages, and return the name of each, or "" for one that the SuperLink did not take.

    It takes none for a node just gone, and none at all if they are too large for it. If it fails
    for a moment, the same messages are pushed again: they have the same names, and so no node gets
    one twice. This ends at half of their lifetime: the SuperLink fails for messages that are older.
    """
    if not messages:
        return []
    names = patiently(lambda: [*grid.push_messages(messages)], time_limit / 2)
    return [name or "" for name, _ in zip_longest(names[: len(messages)], messages)]


def pause(began: float) -> None:
    """Sleep before the next look for a tenth of the time that one has waited, within bounds."""
    shortest, longest = PAUSES
    time.sleep(min(longest, max(shortest, (time.monotonic() - began) / 10)))


def pulled(grid: Grid, names: Iterable[str]) -> list[tuple[str, Reply]]:
    """Return the replies that have come to the messages of these names.

    Each reply is pulled by itself, because Flower decodes it at once: a reply that can't be decoded
    must not affect the others. If the SuperLink fails for a moment, the reply is left for the next
    look, where Flower says that it is missing if the SuperLink had handed it out already.
    """
    found = []
    for name in names:
        try:
            replies = list(grid.pull_messages([name]))
            # The SuperLink is trusted to match messages, but a node writes what its reply answers.
            own = [reply for reply in replies if reply.metadata.reply_to_message_id == name]
            if replies:
                found.append((name, Reply.of(own[0]) if own else Reply(error=ASTRAY)))
        except Exception as error:
            if may_pass(error):
                continue
            patiently(grid.get_node_ids)  # this raises too if the run was stopped
            found.append((name, Reply(error=f"not a message: {reason(error)}")))
    return found
