"""Send one message to each of several nodes, and collect the replies."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import httpx
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from umbel.flower.refusals import plain_beginning, reason

WORK, HELLO = "query.work", "query.hello"
"""The kinds of messages."""

PAUSES = 0.02, 0.5
"""Seconds between two looks for replies: at least and at most."""

WITHOUT_ANSWER = {
    3,  # the message expired
    4,  # the reply expired
    5,  # the node sends no heartbeat any more
    8,  # the process that was at work died
}
"""Codes of the errors that stand for an answer that never came.

The others are answers: the node could not load its app, or the app raised an error.
"""

ASTRAY = "it says that it answers another message"


@dataclass(frozen=True)
class Reply:
    """Content of a reply, an error at the node, or why no answer came."""

    content: RecordDict | None = None
    error: str | None = None
    missing: str | None = None

    @classmethod
    def of(cls, message: Message) -> Reply:
        """What the message says."""
        if not message.has_error():
            return cls(message.content)
        code, said = message.error.code, plain_beginning(f"{message.error.reason}")
        said = f"error {int(code)}: {said}"
        return cls(missing=said) if code in WITHOUT_ANSWER else cls(error=said)


def exchange(
    grid: Grid, contents: Mapping[int, tuple[str, RecordDict]], time_limit: float
) -> dict[int, Reply]:
    """Send each node a message, and return what came back within a number of seconds.

    Replies are matched by the message that they answer, as errors come from the SuperLink and not
    from the failed node. Replies to older messages, and second replies, are ignored.
    """
    nodes = list(contents)
    messages = [Message(contents[n][1], n, contents[n][0], ttl=time_limit) for n in nodes]
    pushed = zip(grid.push_messages(messages), nodes, strict=True)
    waiting = {name: node for name, node in pushed if name}  # none for a node just gone
    found = {node: Reply(missing=f"no answer within {time_limit:g} s") for node in nodes}
    began = time.monotonic()
    while waiting and time.monotonic() < began + time_limit:
        for name, reply in pulled(grid, waiting):
            found[waiting.pop(name)] = reply
        if waiting:
            pause(began)
    return found


def pause(began: float) -> None:
    """Sleep before the next look for a tenth of the time that one has waited, within bounds."""
    shortest, longest = PAUSES
    time.sleep(min(longest, max(shortest, (time.monotonic() - began) / 10)))


def _may_pass(error: Exception) -> bool:
    """Whether the SuperLink may answer the same question a moment later."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.is_server_error
    return isinstance(error, OSError | httpx.TransportError)


def pulled(grid: Grid, names: Iterable[str]) -> list[tuple[str, Reply]]:
    """The replies that have come to the messages of these names.

    Each reply is pulled by itself, because Flower decodes it at once: a reply that can't be decoded
    must not affect the others. If the SuperLink fails for a moment, the reply is left for the next
    look, where Flower says that it is missing if the SuperLink had handed it out already.
    """
    found = []
    for name in names:
        try:
            replies = list(grid.pull_messages([name]))
            own = [reply for reply in replies if reply.metadata.reply_to_message_id == name]
            if replies:
                found.append((name, Reply.of(own[0]) if own else Reply(error=ASTRAY)))
        except Exception as error:
            if _may_pass(error):
                continue
            grid.get_node_ids()  # this raises too if the run was stopped
            found.append((name, Reply(error=f"not a message: {reason(error)}")))
    return found
