"""A grid in this process: real messages through their wire format, real apps, no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

ERRORS = {
    "not loaded": ErrorCode.LOAD_CLIENT_APP_EXCEPTION,
    "raised": ErrorCode.CLIENT_APP_RAISED_EXCEPTION,
    "expired": ErrorCode.MESSAGE_UNAVAILABLE,
    "reply expired": ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    "dead": ErrorCode.NODE_UNAVAILABLE,
    "killed at work": ErrorCode.CLIENT_APP_CRASHED,
}
"""Fates of a node that end in an error of Flower's."""


@dataclass
class MemoryGrid(Grid):
    """Nodes that work when they are asked; `fate` says what goes wrong at which node."""

    apps: Mapping[int, ClientApp]
    configs: Mapping[int, Mapping[str, Any]]
    fate: dict[int, str] = field(default_factory=dict)  # of ERRORS, gone, silent, twice, or late
    replies: dict[str, list[Message]] = field(default_factory=dict)
    late: list[Message] = field(default_factory=list)
    bytes_down: int = 0
    bytes_up: int = 0
    taken: set[str] = field(default_factory=set)  # the names of all messages
    asked: list[str] = field(default_factory=list)  # the kind of each message
    time_limits: dict[str, float] = field(default_factory=dict)  # of the last of each kind

    def __post_init__(self) -> None:
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return [node for node in self.apps if self.fate.get(node) != "gone"]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [reply for name in message_ids for reply in self.replies.pop(name, [])]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        raise NotImplementedError

    def _push(self, message: Message) -> str:
        # As the SuperLink does, it takes what is pushed again for what it has.
        name, node = message.object_id, message.metadata.dst_node_id
        if name in self.taken:
            return name
        self.taken.add(name)
        message.metadata.__dict__["_message_id"] = name
        self.asked.append(message.metadata.message_type)
        self.time_limits[self.asked[-1]] = message.metadata.ttl
        sent, size = wired(message)
        self.bytes_down += size
        fate = self.fate.get(node)
        if fate == "silent":
            return name
        if fate in ERRORS:
            error = Message(Error(code=ERRORS[fate], reason=fate), reply_to=sent)
            error.metadata.__dict__["_src_node_id"] = 1  # it comes from the SuperLink
            self.replies[name] = [error]
            return name
        config = dict(self.configs[node])
        reply, size = wired(self.apps[node](sent, Context(1, node, config, RecordDict(), {})))
        self.bytes_up += size
        if fate == "late":
            self.late.append(reply)
            return name
        again = [] if self.fate else self.late
        self.replies[name] = [reply] * (2 if fate == "twice" else 1) + again
        return name


def wired(message: Message) -> tuple[Message, int]:
    """The message as the other side reads it, and its size in bytes."""
    contents = {name: each.deflate() for name, each in get_all_nested_objects(message).items()}
    size, name = sum(map(len, contents.values())), message.metadata.message_id
    read = inflate_object_from_contents(message.object_id, contents)
    assert isinstance(read, Message)
    read.metadata.__dict__["_message_id"] = name
    return read, size
