"""The time of each part of a message: an app for nodes and a grid for the server that log it.

All processes are on one machine, whose clock they share. Each line of a file is a JSON object.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

LOADED = time.time()
"""An app imports this before PyTorch and umbel, and after its message has come."""

PARTS = {
    "pushed": "the server hands the messages of all nodes to the SuperLink",
    "started": "a node fetches its message, and starts a process",
    "fetched": "the process imports Flower, and fetches the message and the app",
    "called": "the app imports PyTorch and umbel",
    "done": "the clients' work, their examples read from files",
    "pulled": "the reply goes to the SuperLink and to the server",
    "asked": "the server checks and averages, clusters, and writes a record",
}
"""For each event, the part of the time before it, in the order of events."""


class TimedApp(ClientApp):
    """Answers like an app, and logs the times."""

    def __init__(self, app: ClientApp, file: Path) -> None:
        super().__init__()
        self.app, self.file = app, file

    def __call__(self, message: Message, context: Context) -> Message:
        called = time.time()
        reply = self.app(message, context)
        times = {"started": process_start(), "fetched": LOADED, "called": called}
        note(self.file, message=message.metadata.message_id, **times, done=time.time())
        return reply


class TimedGrid:
    """A grid that writes down when messages are handed over, and when their replies have come."""

    def __init__(self, grid: Grid, file: Path) -> None:
        self.grid, self.file = grid, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.grid, name)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        asked = time.time()
        names = list(self.grid.push_messages(messages))
        for name in names:
            note(self.file, message=name, asked=asked, pushed=time.time())
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = list(self.grid.pull_messages(message_ids))
        for reply in found:
            note(self.file, message=reply.metadata.reply_to_message_id, pulled=time.time())
        return found


def note(file: Path, **event: object) -> None:
    """Append a whole line, even if several processes write to the file."""
    with file.open("a") as lines:
        lines.write(json.dumps(event) + "\n")


def process_start() -> float:
    """The start time of this process, to a hundredth of a second."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")


def parts(file: Path) -> Mapping[str, float]:
    """Seconds of each part: medians over requests, of which those of the slowest node count.

    The first request, which greets the nodes, and the last are left out.
    """
    messages: dict[str, dict[str, float]] = defaultdict(dict)
    for line in file.read_text().splitlines():
        event = json.loads(line)
        messages[event.pop("message")].update(event)
    requests: dict[float, list[dict[str, float]]] = defaultdict(list)
    for message in messages.values():
        requests[message["asked"]].append(message)
    taken = defaultdict(list)
    for begin, following in pairwise(sorted(requests)[1:]):
        last = max(requests[begin], key=lambda message: message["pulled"])
        events = {**last, "asked": following}
        before = begin
        for name in PARTS:
            taken[name].append(events[name] - before)
            before = events[name]
    return {name: median(seconds) for name, seconds in taken.items()}
