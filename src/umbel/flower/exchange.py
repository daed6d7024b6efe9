"""One message to each of several nodes, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

WORK, HELLO = "query.work", "query.hello"
"""The kinds of messages."""

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Reply:
    """Content, an error, or neither within the time."""

    content: RecordDict | None = None
    error: str | None = None


def exchange(
    grid: Grid, contents: Mapping[int, tuple[str, RecordDict]], time_limit: float
) -> dict[int, Reply]:
    """Send each node a message of this kind and content; what came back in so many seconds.

    A reply is told by the message that it answers: an error comes from the SuperLink and not from
    the node that failed, and what answers an older message, or a second time, is not looked at.
    """
    nodes = list(contents)
    messages = [Message(contents[n][1], n, contents[n][0], ttl=time_limit) for n in nodes]
    pushed = zip(grid.push_messages(messages), nodes, strict=True)
    waiting = {name: node for name, node in pushed if name}  # none for a node just gone
    found = {node: Reply() for node in nodes}
    deadline = time.monotonic() + time_limit
    while waiting and time.monotonic() < deadline:
        for reply in grid.pull_messages(list(waiting)):
            node = waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is None:
                continue
            if reply.has_error():
                found[node] = Reply(error=f"error {reply.error.code}: {reply.error.reason}")
            else:
                found[node] = Reply(reply.content)
        if waiting:
            time.sleep(POLL_SECONDS)
    return found
