"""The CPU time of a round, separated by the part that does the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import process_time
from typing import Any
from unittest.mock import patch

from umbel.engines import remembering
from umbel.engines.remembering import Remembering
from umbel.engines.replies import bounds
from umbel.engines.replies import guarded as wrappers
from umbel.flow import through
from umbel.folder.evidence_folder import EvidenceFolder
from umbel.folder.records_file import RecordLines
from umbel.folder.run_folder import RunFolder
from umbel.reduction import Reduction
from umbel.run import rounds as runs
from umbel.run.rounds import Rounds

PARTS = ("engine", "checks", "averages", "server", "evaluation", "record", "checkpoint")
"""Parts of a round's time; "server" is the rest: the method's own work."""

WHOLE = {"evaluation", "record", "checkpoint"}
"""Parts that include all work inside them."""


@dataclass
class Stopwatch:
    """CPU seconds by part; work that a part requests of another counts for the other."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    open: list[str] = field(default_factory=list)
    since: float = field(default_factory=process_time)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count all work inside the block as this part's."""
        swallowed = bool(WHOLE & set(self.open))
        self._switch()
        self.open.append(self.open[-1] if swallowed else name)
        try:
            yield
        finally:
            self._switch()
            self.open.pop()

    def take(self) -> dict[str, float]:
        """The seconds since the last call."""
        taken, self.seconds = self.seconds, dict.fromkeys(PARTS, 0.0)
        return taken

    def move(self, seconds: float, part: str, to: str) -> None:
        """Count as another part's what one has done for it."""
        self.seconds[part] -= seconds
        self.seconds[to] += seconds

    def _switch(self) -> None:
        now = process_time()
        if self.open:
            self.seconds[self.open[-1]] += now - self.since
        self.since = now

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, counted as this part."""

        def inside(*args: Any, **given: Any) -> Any:
            with self.part(name):
                return function(*args, **given)

        return inside


@dataclass(frozen=True)
class Watched:
    """An engine with its time counted separately."""

    engine: Any
    watch: Stopwatch

    def send(self, request: Any) -> Any:
        with self.watch.part("engine"):
            return self.engine.send(request)


@contextmanager
def watching(watch: Stopwatch) -> Iterator[None]:
    """Separate the parts of all rounds inside the block."""

    def passed(flow: Any, engine: Any) -> Any:
        with watch.part("evaluation" if flow.gi_code.co_name == "evaluated" else "server"):
            return (yield from through(flow, engine))

    spared = Remembering.take

    def taken(engine: Remembering) -> float:
        # What an evaluation has judged for the round after it is that round's, as in records.
        seconds = spared(engine)
        watch.move(seconds, "evaluation", "engine")
        return seconds

    functions = [
        (wrappers, "bad_values", "checks"),
        (bounds.Bounds, "apply", "checks"),
        (Reduction, "of", "averages"),
        (runs, "make_record", "record"),
        (RecordLines, "append", "record"),
        (EvidenceFolder, "note", "record"),
        (RunFolder, "save", "checkpoint"),
    ]
    with ExitStack() as all_of_them:
        all_of_them.enter_context(patch.object(runs, "through", passed))
        for owner, name, part in functions:
            timed = watch.timed(part, getattr(owner, name))
            kept = timed if not isinstance(owner, type) else _method(timed)
            all_of_them.enter_context(patch.object(owner, name, kept))
        all_of_them.enter_context(patch.object(Rounds, "clients", _watched_clients(watch)))
        all_of_them.enter_context(patch.object(Remembering, "take", taken))
        all_of_them.enter_context(patch.object(remembering, "perf_counter", process_time))
        yield


def _method(timed: Callable[..., Any]) -> Any:
    def inside(self: Any, *args: Any, **given: Any) -> Any:
        return timed(self, *args, **given)

    return inside


def _watched_clients(watch: Stopwatch) -> Any:
    """`Rounds.clients` with its time counted separately."""
    made: dict[int, Watched] = {}
    build = vars(Rounds)["clients"].func

    def clients(run: Rounds) -> Watched:
        if id(run) not in made:
            made[id(run)] = Watched(build(run), watch)
        return made[id(run)]

    return property(clients)
