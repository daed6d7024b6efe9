"""Several runs side by side, so that their requests for small models are answered together.

Each run has a thread of its own, but only one thread works at a time: a run continues until it
sends a request, and waits until all other runs have sent one, too. Equal requests are then joined.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.checks import QuorumError
from umbel.data.federation import Federation
from umbel.engines import EngineSettings, Vectorised, make_engine
from umbel.engines.vectorised import ROWS, SMALL_MODEL
from umbel.flow import Engine, Replies, Request, Rows
from umbel.runs.run import Run

MOST_WASTED = 700_000
"""Largest padding of a step, in values times examples, that costs less time than separate calls."""

LARGEST_FEDERATION = 2**25
"""Largest number of values in a federation's examples.

Several federations, and a copy of them all, are in memory at once.
"""


class Stopped(Exception):  # noqa: N818
    """Raised in a run when another run, or the user, has ended all runs."""


def _as_one(errors: Sequence[BaseException]) -> BaseException:
    first, *others = errors
    if others and isinstance(first, QuorumError):
        return type(first)("\n".join(map(str, errors)))
    for other in others:
        first.add_note(f"beside it, in another run: {other!r}")
    return first


@dataclass(frozen=True)
class Seat:
    """The engine of one of the runs."""

    table: MeetingPoint
    number: int

    def send(self, request: Request) -> Replies:
        return self.table.ask(self.number, request)


def pays(run: Run) -> bool:
    """Whether runs like this one are faster side by side than one after another.

    With larger models the work itself takes the time, and nothing is gained. In bfloat16 results
    would differ by more than rounding: whether it is used depends on the number of clients computed
    together.
    """
    federation, engine = run.divided, run.engine
    values = sum(split.x.numel() for split in federation.splits)
    if run.privacy.clip is not None:
        return False
    if isinstance(engine, EngineSettings) and engine.precision != "full":
        return False
    return run.net.layout.num_values <= SMALL_MODEL and values <= LARGEST_FEDERATION


def seats(runs: Sequence[Run]) -> MeetingPoint | None:
    """A table for these runs; None if they are too different, or if their clients are not batched.

    Clients of unequal sizes would be padded to the largest client in the joined request, which
    changes the last bits of their results. A bound on memory, which limits the clients computed at
    a time, may do so as well. A GPU sums in another order if more clients are computed together.
    """
    first, settings = runs[0], runs[0].engine
    alike = all(
        run.engine == settings
        and run.net.layout == first.net.layout
        and run.divided.input_shape == first.divided.input_shape
        and run.divided.num_classes == first.divided.num_classes
        and (run.divided.validation is None) == (first.divided.validation is None)
        for run in runs
    )
    if not alike or not isinstance(settings, EngineSettings) or settings.workers != "auto":
        return None
    examples = _sizes(runs)
    if any(len(np.unique(sizes)) > 1 for sizes in examples) or settings.memory_mb is not None:
        return None
    engine = make_engine(first.net, joined([run.divided for run in runs]), settings)
    if not isinstance(engine, Vectorised) or engine.device.type != "cpu":
        return None
    begins = accumulate((run.divided.num_clients for run in runs), initial=0)
    return MeetingPoint(
        engine, list(begins)[:-1], max(int(sizes.max(initial=1)) for sizes in examples)
    )


def _sizes(runs: Sequence[Run]) -> list[NDArray[np.int64]]:
    """How many examples all clients of all runs have, by split."""
    every = zip(*(run.divided.splits for run in runs), strict=True)
    return [np.concatenate([split.sizes for split in alike]) for alike in every]


def joined(federations: Sequence[Federation]) -> Federation:
    """One federation of the clients of all, in their order."""
    every = [(each, client) for each in federations for client in range(each.num_clients)]
    return Federation.from_arrays(
        [each.train.of(client) for each, client in every],
        [each.test.of(client) for each, client in every],
        validation=[v.of(client) for each, client in every if (v := each.validation)] or None,
        num_classes=federations[0].num_classes,
    )


class MeetingPoint:
    """Collects the requests of the runs, and answers them together."""

    def __init__(self, engine: Engine, first_clients: Sequence[int], examples: int) -> None:
        self.engine = engine
        self.examples = examples  # of a client, in the split of which it has most
        self.first_clients = first_clients  # the number of each run's client 0 among all clients
        self.seated = set(range(len(first_clients)))
        self.asked: dict[int, Request] = {}
        self.answers: dict[int, Replies] = {}
        self.stopped = False
        self.change = threading.Condition()
        self.moving = threading.Lock()  # held by the one run that moves

    def drive(self, jobs: Sequence[Callable[[Engine], None]]) -> None:
        """Give each job its engine, and run all to their ends; then raise an error, if any.

        It is the first error that other settings would not cure; the other errors become notes to
        it. If other settings would cure all, their messages are lines of one error.
        """
        errors: dict[int, BaseException] = {}
        threads = [
            threading.Thread(target=self._run, args=(number, job, errors), daemon=True)
            for number, job in enumerate(jobs)
        ]
        for thread in threads:
            thread.start()
        try:
            self._serve()
        finally:
            with self.change:
                self.stopped = True
                self.change.notify_all()
            for thread in threads:
                thread.join()
        order = sorted(errors, key=lambda number: (isinstance(errors[number], QuorumError), number))
        if order:
            raise _as_one([errors[number] for number in order])

    def ask(self, number: int, request: Request) -> Replies:
        """Return the replies, after all other runs at the table have sent a request or ended."""
        self.moving.release()
        try:
            with self.change:
                self.asked[number] = request
                self.change.notify_all()
                self.change.wait_for(lambda: number in self.answers or self.stopped)
                if number not in self.answers:
                    raise Stopped
                return self.answers.pop(number)
        finally:
            self.moving.acquire()

    def _run(
        self, number: int, job: Callable[[Engine], None], errors: dict[int, BaseException]
    ) -> None:
        with self.moving:
            try:
                if not self.stopped:
                    job(Seat(self, number))
            except Stopped:
                pass
            except BaseException as error:
                errors[number] = error
            finally:
                with self.change:
                    self.seated.discard(number)
                    self.change.notify_all()

    def _serve(self) -> None:
        while True:
            with self.change:
                self.change.wait_for(lambda: len(self.asked) == len(self.seated))
                if not self.seated:
                    return
                asked, self.asked = self.asked, {}
            answers = self._answers(asked)
            with self.change:
                self.answers |= answers
                self.change.notify_all()

    def _answers(self, asked: Mapping[int, Request]) -> dict[int, Replies]:
        groups: dict[object, list[int]] = {}
        for number in sorted(asked):
            groups.setdefault(_kind(number, asked[number], self.examples), []).append(number)
        answers = {}
        for numbers in groups.values():
            requests = [asked[number] for number in numbers]
            firsts = [self.first_clients[number] for number in numbers]
            seated = [padded(request) for request in requests] if len(requests) > 1 else requests
            replies = self.engine.send(merged(seated, firsts))
            begins = accumulate((len(request.clients) for request in seated), initial=0)
            for number, request, begin in zip(numbers, requests, begins, strict=False):
                part = slice(begin, begin + len(request.clients))
                columns = {name: column[part] for name, column in replies.columns.items()}
                answers[number] = Replies(request.clients, columns)
        return answers


def padded(request: Request) -> Request:
    """The request with its last client once more, until the next run's rows begin aligned.

    Sums depend on where in memory rows of an odd number of values begin.
    """
    count = len(request.clients)
    return request.pick(torch.arange(_seats(count)).clamp(max=count - 1))


def _seats(count: int) -> int:
    return -(-count // ROWS) * ROWS


def _is_little_padded(request: Request, examples: int) -> bool:
    """Whether joining saves more time than this padding costs, for clients of so many examples."""
    count = len(request.clients)
    steps, width = request.work.batching.size(examples)
    values = sum(rows.table.shape[1:].numel() for rows in request.each.values())
    return (_seats(count) - count) * values * (width if steps else examples) <= MOST_WASTED


def merged(requests: Sequence[Request], first_clients: Sequence[int]) -> Request:
    """Join equal requests, each for the clients of its own run, into one."""
    sizes = [len(request.clients) for request in requests]
    whose = torch.repeat_interleave(torch.arange(len(requests)), torch.tensor(sizes))
    each = {}
    for name in requests[0].each:
        tables = [request.each[name].table for request in requests]
        starts = torch.tensor(list(accumulate(map(len, tables), initial=0))[:-1])
        index = torch.cat([request.each[name].index for request in requests])
        each[name] = Rows(torch.cat(tables), index + starts[whose])
    firsts = torch.tensor(first_clients)[whose]
    return replace(
        requests[0],
        clients=torch.cat([request.clients for request in requests]) + firsts,
        seeds=[seed for request in requests for seed in request.seeds],
        each=each,
        reduction=None,
    )


def _kind(number: int, request: Request, examples: int) -> object:
    """A key that is equal for requests of several runs that can be joined.

    Tensors shared by all clients are computed differently from rows for each client; the same holds
    for a request to a single client, and for one model that nobody trains. Such requests are not
    joined. Neither are requests whose padding would take longer than a separate call.
    """
    if request.shared or len(request.clients) < 2 or not _is_little_padded(request, examples):
        return number
    trains = request.work.batching.size(1)[0] > 0
    if not trains and all((rows.index == rows.index[0]).all() for rows in request.each.values()):
        return number
    each = tuple((name, rows.table.shape[1:]) for name, rows in sorted(request.each.items()))
    return request.work, each
