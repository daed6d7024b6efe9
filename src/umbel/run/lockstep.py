"""Several runs side by side, so that their requests for small models are answered together.

Each run is a generator. It continues until it yields a request; once all other runs have yielded
one, too, equal requests are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar, TypeVar

import numpy as np

from umbel.checks import QuorumError
from umbel.client.objectives import BINARY
from umbel.data.federation import Federation
from umbel.engines import EngineSettings, Vectorised, make_engine
from umbel.engines.vectorised import SMALL_MODEL
from umbel.flow import Replies, Request, Steps
from umbel.run.joined_requests import kind_of, merged, padded, trains
from umbel.run.rounds import Rounds

T = TypeVar("T")

LARGEST_FEDERATION = 2**25
"""Largest number of values in a federation's examples.

Several federations, and a copy of them all, are in memory at once.
"""


def as_one(errors: Sequence[QuorumError]) -> QuorumError:
    """The error of a single run, or one that holds those of several and has a line for each."""
    if len(errors) == 1:
        return errors[0]
    whole = type(errors[0])("\n".join(map(str, errors)))
    whole.runs = errors
    return whole


def _first(errors: Sequence[Exception]) -> Exception:
    """The first error, with notes of the others, unless other settings would cure them all."""
    curable = [error for error in errors if isinstance(error, QuorumError)]
    if len(curable) == len(errors):
        return as_one(curable)
    first, *others = errors
    for other in others:
        first.add_note(f"beside it, in another run: {other!r}")
    return first


@dataclass(frozen=True)
class OneOfSeveral:
    """The engine of one of the runs."""

    beside: ClassVar[bool] = True  # the clients are here, as without other runs
    lockstep: Lockstep
    number: int

    def send(self, request: Request) -> Replies:
        return self.lockstep.answers({self.number: request})[self.number]


def is_faster(run: Rounds) -> bool:
    """Return True if such runs are faster side by side, with the same results.

    With larger models the work itself takes the time, and nothing is gained. In bfloat16 results
    would differ by more than rounding: whether it is used depends on the number of clients computed
    together. Only chains of linear layers with ReLU have the same results in a batch of another
    size. Other networks, and yes/no targets, may need functions such as a sigmoid, of which PyTorch
    computes the last few values of a tensor in another way.
    """
    federation, engine = run.divided, run.engine
    values = sum(split.x.numel() for split in federation.splits)
    if run.privacy.clip is not None:
        return False
    if isinstance(engine, EngineSettings) and engine.precision != "full":
        return False
    if not run.net.is_dense or run.net.objective is BINARY:
        return False
    return run.net.layout.num_values <= SMALL_MODEL and values <= LARGEST_FEDERATION


def lockstep_of(runs: Sequence[Rounds]) -> Lockstep | None:
    """Return the driver of these runs; None if they differ too much or clients are not batched.

    Clients of unequal sizes would be padded to the largest client in the joined request, which
    changes the last bits of their results. A bound on memory, which limits the clients computed at
    a time, may do so as well. A GPU sums in another order if more clients are computed together.
    A run alone computes a single client in another way than several.
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
    if (
        first.time is not None
        or first.membership is not None
        or not alike
        or not isinstance(settings, EngineSettings)
        or settings.workers != "auto"
    ):
        return None
    if any(run.divided.num_clients == 1 for run in runs):
        return None
    every = zip(*(run.divided.splits for run in runs), strict=True)
    examples = [np.concatenate([split.sizes for split in alike]) for alike in every]
    if any(len(np.unique(sizes)) > 1 for sizes in examples) or settings.memory_mb is not None:
        return None
    engine = make_engine(first.net, joined([run.divided for run in runs]), settings)
    if not isinstance(engine, Vectorised) or engine.device.type != "cpu":
        return None
    if engine.net.way.kernel != "dense":
        return None
    begins = accumulate((run.divided.num_clients for run in runs), initial=0)
    most = max(int(sizes.max(initial=1)) for sizes in examples)
    return Lockstep(engine, list(begins)[:-1], most)


def joined(federations: Sequence[Federation]) -> Federation:
    """One federation of the clients of all, in their order."""
    every = [(each, client) for each in federations for client in range(each.num_clients)]
    return Federation.from_arrays(
        [each.train.of(client) for each, client in every],
        [each.test.of(client) for each, client in every],
        validation=[v.of(client) for each, client in every if (v := each.validation)] or None,
        num_classes=federations[0].num_classes,
    )


@dataclass(frozen=True)
class Lockstep:
    """Drives runs, and answers their requests together."""

    engine: Vectorised  # of the clients of all runs
    first_clients: Sequence[int]  # the number of each run's client 0 among all clients
    examples: int  # of a client, in the split of which it has most

    def with_engines(self, runs: Sequence[Rounds]) -> list[Rounds]:
        """The runs, each with its clients in the common engine."""
        return [replace(run, engine=OneOfSeveral(self, n)) for n, run in enumerate(runs)]

    def drive(self, runs: Sequence[Steps[T, None]]) -> Iterator[tuple[int, T]]:
        """Drive all runs to their ends, and yield each result with the number of its run.

        An error in a run is raised after the other runs' ends. It is the first error that other
        settings would not cure; the other errors become notes to it. If other settings would cure
        all, their messages are lines of one error.
        """
        errors: dict[int, Exception] = {}
        answers: dict[int, Replies] = {}
        going = dict(enumerate(runs))
        with ExitStack() as ends:
            for run in runs:
                ends.enter_context(closing(run))
            while going:
                asked: dict[int, Request] = {}
                # Each run goes on to its next request; a run that has ended is not waited for.
                for number, run in list(going.items()):
                    try:
                        step = run.send(answers.pop(number)) if number in answers else next(run)
                        while not isinstance(step, Request):
                            yield number, step
                            step = next(run)
                        asked[number] = step
                    except StopIteration:
                        del going[number]
                    except Exception as error:
                        errors[number] = error
                        del going[number]
                answers = self.answers(asked)
        # Errors that other settings would not cure come first.
        order = sorted(errors, key=lambda number: (isinstance(errors[number], QuorumError), number))
        if order:
            raise _first([errors[number] for number in order])

    def answers(self, asked: Mapping[int, Request]) -> dict[int, Replies]:
        """The replies to requests by the numbers of their runs."""
        groups: dict[object, list[int]] = {}
        for number in sorted(asked):
            kind = kind_of(number, asked[number], self.examples)
            groups.setdefault(kind, []).append(number)
        answers: dict[int, Replies] = {}
        for numbers in groups.values():
            answers |= self._answered({number: asked[number] for number in numbers})
        return answers

    def _answered(self, asked: Mapping[int, Request]) -> dict[int, Replies]:
        """The answers to requests of one kind, which are joined unless that changes results."""
        requests, firsts = list(asked.values()), [self.first_clients[number] for number in asked]
        seated = [padded(request) for request in requests] if len(requests) > 1 else requests
        whole = merged(seated, firsts)
        if len(requests) > 1 and not self._may_join(whole):
            apart = [self._answered({number: request}) for number, request in asked.items()]
            return {number: replies for part in apart for number, replies in part.items()}
        replies = self.engine.send(whole)
        begins = accumulate((len(request.clients) for request in seated), initial=0)
        answers = {}
        for (number, request), begin in zip(asked.items(), begins, strict=False):
            part = slice(begin, begin + len(request.clients))
            columns = {name: column[part] for name, column in replies.columns.items()}
            answers[number] = Replies(request.clients, columns)
        return answers

    def _may_join(self, whole: Request) -> bool:
        """Return True if joining a request does not change how any client is computed.

        If all clients of a chunk are sent one model, it is computed in another way than rows. The
        chunks of a joined request begin and end at other clients than those of a run alone, so that
        this could change. With a single chunk, or for training, it can't.
        """
        return trains(whole) or sum(1 for _ in self.engine.chunks(whole)) == 1
