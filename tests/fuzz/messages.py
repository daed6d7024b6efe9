"""Broken messages for both sides: each is read or refused, quickly and in little memory.

A server gets answers and greetings of a node, and a node greetings and requests of a server, all
through the code that a deployment runs. Works that are still valid are done.
"""

from __future__ import annotations

import itertools
import logging
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict

from tests.engines.test_equality import WORKS
from tests.flower.grid import MemoryGrid
from tests.fuzz.mutation import mutated
from umbel.algorithms import FedAvg
from umbel.client.work import (
    MEMORY,
    LocalTraining,
    PersonalEvaluation,
    PersonalTraining,
    PrototypeTraining,
    SharedTraining,
    Work,
    parted,
)
from umbel.data.federation import Federation
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.engines import EngineSettings
from umbel.engines.replies.guarded import Guarded
from umbel.engines.replies.validation import Limits
from umbel.experiment.toml_file import write
from umbel.flow import Request, Rows
from umbel.flower import FlowerEngine, client_app
from umbel.flower.client import Node
from umbel.flower.discovery import Meeting
from umbel.flower.exchange import HELLO, WORK
from umbel.flower.expected_form import Expectation
from umbel.flower.handshake import greet, introduce
from umbel.flower.messages import Asked, answer, ask
from umbel.flower.registry import Roll
from umbel.networks import Linear
from umbel.result.run import Experiment

SECONDS = 1.0
"""Most processor time for one message."""

GROWTH = 200
"""MiB by which all messages together may make the process larger."""


@dataclass(frozen=True)
class Anything(FedAvg):
    """A method that may ask for every work, so that nodes do all of them."""

    @property
    def sends(self) -> tuple[Work, ...]:
        return (*super().sends, *WORKS)


EXPERIMENT = Experiment(
    replace(ROTATED_DIGITS, clients=2),
    Linear(),
    Anything(LocalTraining(epochs=1)),
    name="fuzz",
    engine=EngineSettings("sequential"),
)
SITE_LIMITS = {"max-bytes": 10**6, "max-steps": 200, "max-examples": 4000, "max-seconds": 5.0}
SITE_LIMITS |= {"max-requests": 10**9, "describe": True}


def clients() -> Federation:
    """Two clients with a few examples of six values."""
    rng = np.random.default_rng(0)
    shards = [(rng.random((8, 6), dtype=np.float32), rng.integers(0, 3, 8)) for _ in range(2)]
    return Federation.from_arrays(shards, names=["a", "b"], num_classes=3)


def requests(node: Node) -> list[Request]:
    """Each work, with all tensors that any asks for."""
    models = torch.stack([node.net.new(seed) for seed in range(2)])
    index = torch.tensor([0, 1])
    shared = {"models": models, "moves": models.clone(), "coordinates": torch.tensor([0, 3])}
    each = {"theta": Rows(models, index), "given": Rows(torch.tensor([-1, 0]), index)}
    weights = Rows(torch.full((2, 2), 0.5), index)
    each |= {MEMORY: weights, "weights": weights, "anchor": Rows(models.flip(0), index)}
    shared |= {"prototypes": torch.zeros(3, 6), "known": torch.tensor([True, False, True])}
    shared["shares"] = torch.tensor([[0.0, 0.0], [0.5, 0.0]], dtype=models.dtype)
    versions = {**each, MEMORY: Rows(torch.stack([models, models.roll(1, 0)], 1), index)}
    personal = (PersonalTraining, PersonalEvaluation)

    def sent(work: Work) -> dict[str, Rows]:
        if isinstance(work, SharedTraining):
            places = zip(("theta", MEMORY), parted(node.net.layout, work.kept), strict=True)
            return each | {name: Rows(models.index_select(1, at), index) for name, at in places}
        if isinstance(work, PrototypeTraining):
            return {MEMORY: each["theta"]}
        return versions if isinstance(work, personal) else each

    return [Request(work, index, [1, 2], shared, sent(work)) for work in WORKS]


@dataclass
class Answering(MemoryGrid):
    """One node, which gives the answer that it is told to."""

    content: RecordDict = field(default_factory=RecordDict)

    def _push(self, message: Message) -> str:
        name = message.metadata.__dict__["_message_id"] = "x"
        self.replies[name] = [Message(self.content, reply_to=message)]
        return name


def grid() -> Answering:
    """A grid with one node."""
    return Answering({1: None}, {})  # type: ignore[dict-item]


@dataclass(frozen=True)
class Side:
    """Valid contents of one kind of message, and what reads them."""

    name: str
    valid: tuple[RecordDict, ...] = field(repr=False)
    read: Callable[[int, RecordDict], str]  # which one it was, and the changed one; what came of it


def sides(folder: Path) -> list[Side]:
    """All that messages are read by."""
    grid()  # which says who sends messages in this process
    file = folder / "experiment.toml"
    file.write_text(write(EXPERIMENT))
    node = Node.of(EXPERIMENT, clients(), folder / "here" / "memory.safetensors")
    asked = requests(node)
    return [_answers(node, asked), _greetings(node), *_of_node(file, folder, asked)]


def _answers(node: Node, asked: list[Request]) -> Side:
    """The server reads replies."""
    valid = []
    for request in asked:
        replies = node.engine.send(request)
        valid.append(answer(["a", "b"], replies.columns))

    def read(number: int, content: RecordDict) -> str:
        meeting = Meeting(grid(), 5.0, form=node.site().form)
        meeting.sites[1] = node.site()
        meeting.precedence.note(1, node.site().clients)
        meeting.grid.content = content  # type: ignore[attr-defined]
        engine = Guarded(FlowerEngine(meeting, ["a", "b"], {}, 5.0), Limits(quorum=0.0))
        optional = replace(asked[number], optional=True)
        found = engine.send(optional)
        return "used" if len(found.clients) else "refused" if engine.refused else "ignored"

    return Side("answers", tuple(valid), read)


def _greetings(node: Node) -> Side:
    """The server reads what nodes say of themselves."""

    def read(_: int, content: RecordDict) -> str:
        meeting = Meeting(grid(), 5.0, expect=Expectation(EXPERIMENT))
        meeting.grid.content = content  # type: ignore[attr-defined]
        places = meeting.gather(1, 0.0)
        if not places:
            return "refused" if meeting.left_out else "ignored"
        EXPERIMENT.net(Roll.call(places, meeting.sites).federation())
        return "used"

    return Side("greetings", (introduce(node.site()),), read)


def _of_node(file: Path, folder: Path, asked: list[Request]) -> Iterator[Side]:
    """A node reads greetings and requests."""
    app = client_app(file, lambda _context, _experiment: clients())
    config: dict[str, Any] = {"memory-dir": str(folder), **SITE_LIMITS}

    def reading(kind: str) -> Callable[[int, RecordDict], str]:
        def read(_: int, content: RecordDict) -> str:
            message = Message(content, 1, kind)
            message.metadata.__dict__["_message_id"] = "x"
            reply = app(message, Context(1, 1, config, RecordDict(), {}))
            return "refused" if "refused" in _said(reply) else "used"

        return read

    contents = []
    for request in asked:
        index = {name: rows.index.tolist() for name, rows in request.each.items()}
        tables = {name: rows.table for name, rows in request.each.items()}
        contents.append(
            ask(Asked(request.work, ["a", "b"], request.seeds, request.shared, tables, index))
        )
    yield Side("requests", tuple(contents), reading(WORK))
    yield Side("greetings of servers", (greet(),), reading(HELLO))


def _said(reply: Message) -> Any:
    return reply.content.config_records.get("answer", {})


@dataclass
class Figures:
    """What came of all messages."""

    outcomes: Counter[str] = field(default_factory=Counter)
    escapes: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")

    def one(self, side: Side, number: int, drawn: random.Random) -> None:
        """Change one message and have it read."""
        try:
            content = mutated(side.valid[number], drawn)
        except (TypeError, ValueError, OverflowError):  # Flower itself does not carry it
            self.outcomes["not a message of Flower"] += 1
            return
        began = time.process_time()
        try:
            outcome = side.read(number, content)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            outcome = "escaped"
            self.escapes[f"{side.name}: {type(error).__name__} in {where.name}: {error}"[:200]] += 1
        self.outcomes[f"{side.name} {outcome}"] += 1
        seconds = time.process_time() - began
        self.slowest = max(self.slowest, (seconds, f"{side.name} {outcome}"))


class Tracebacks(logging.Handler):
    """Counts the tracebacks that are logged."""

    def __init__(self, figures: Figures) -> None:
        super().__init__()
        self.figures = figures

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None:
            said = f"logged: {record.exc_info[0].__name__}: {record.exc_info[1]}"
            self.figures.escapes[said[:200]] += 1


@contextmanager
def listening(figures: Figures) -> Iterator[None]:
    """Count what umbel logs, and show none of it."""
    logger, handler = logging.getLogger("umbel"), Tracebacks(figures)
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def main(count: int, seed: int = 0) -> int:
    """Read so many messages, show the figures, and return 1 if not all was as it should be."""
    figures, drawn = Figures(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, listening(figures):
        everything = sides(Path(folder))
        kinds = [(side, n) for side in everything for n in range(len(side.valid))]
        weights = [1 / len(side.valid) for side, _ in kinds]
        chosen = itertools.chain.from_iterable(
            drawn.choices(kinds, weights, k=1000) for _ in itertools.count()
        )
        for side, number in itertools.islice(chosen, 2000):  # until everything is loaded
            figures.one(side, number, drawn)
        figures.slowest, size, began = (0.0, ""), _memory(), time.perf_counter()
        for side, number in itertools.islice(chosen, count):
            figures.one(side, number, drawn)
    grown, took = (_memory() - size) / 2**20, time.perf_counter() - began
    seconds, which = figures.slowest
    lines = [f"{number:9,}  {outcome}" for outcome, number in sorted(figures.outcomes.items())]
    lines += [f"{n:9,}  ESCAPED {escape}" for escape, n in figures.escapes.most_common(20)]
    lines.append(
        f"{count:,} messages in {took:.0f} s: {sum(figures.escapes.values())} escaped; slowest "
        f"{seconds:.3f} s ({which}); memory grew by {grown:.0f} MiB"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if figures.escapes or seconds > SECONDS or grown > GROWTH else 0


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
