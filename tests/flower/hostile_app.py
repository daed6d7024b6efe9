"""An app whose nodes attack the server where their setting `hostile` says how."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from tests.flower.attacks import GREETINGS, REPLIES, with_array, with_config
from umbel.flower.exchange import HELLO


def with_accuracy(content: RecordDict, right: float) -> RecordDict:
    """An evaluation in which so many test examples are right."""
    number = len(content.config_records["answer"]["clients"])  # type: ignore[arg-type]
    data = np.full(number, right, dtype=np.float64).tobytes()
    return with_array(content, "columns", "right", data=data)


LIE = "a zip archive"
"""What a liar answers when it was asked to train."""

RIGHT = 3704.0


class HostileApp(ClientApp):
    """Answers as an honest app, until it does not."""

    def __init__(self, app: ClientApp) -> None:
        super().__init__()
        self.app = app

    def __call__(self, message: Message, context: Context) -> Message:
        reply = self.app(message, context)
        way = context.node_config.get("hostile")
        if way is None:
            return reply
        greeted = message.metadata.message_type == HELLO
        content = reply.content
        if way == "babbler" and greeted:
            content = GREETINGS["large inputs"](content)
        elif way == "thief" and greeted:
            _wait_for(Path(str(context.node_config["stolen"])))
            names = [str(client) for client in range(5)]
            fields = dict.fromkeys(("train", "test"), [1] * 5)
            content = with_config(content, "site", clients=names, **fields)
        elif way == "liar" and not greeted:
            content = _lie(content)
        return Message(content, reply_to=message)


def _lie(content: RecordDict) -> RecordDict:
    if "right" in content.array_records["columns"]:
        return with_accuracy(content, RIGHT)
    return REPLIES[LIE](content)


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + 300
    while not file.is_file() and time.monotonic() < deadline:
        time.sleep(0.1)
