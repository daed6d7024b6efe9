"""An experiment is a value, the same as its TOML file; a run is an iterator of its rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.algorithms.base import Algorithm, Assigned, Setup, State
from umbel.ask import Context
from umbel.checks import check
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.engines.choice import EngineSettings, make_engine
from umbel.engines.private import Private
from umbel.engines.wrappers import Faults, Faulty, Guarded, Metered, QuorumError
from umbel.flow import Engine, drive
from umbel.models import Model
from umbel.net import Net
from umbel.privacy import Privacy
from umbel.records import Record, make_record
from umbel.scores import ClientScores, score
from umbel.seeds import Stream, generator, seed_of
from umbel.validation import Limits


@dataclass(frozen=True)
class Run:
    """One method on one federation under one seed: `for state, record in run.rounds(60)`."""

    algorithm: Algorithm[Any]
    federation: Federation
    net: Net
    seed: int = 0
    participation: float = 1.0  # share of the clients asked in each round
    evaluate_every: int = 1  # rounds; the last round is always evaluated
    engine: EngineSettings | Engine = field(default_factory=EngineSettings)
    limits: Limits = field(default_factory=Limits)
    faults: Faults = field(default_factory=Faults)
    privacy: Privacy = field(default_factory=Privacy)  # of clients in this process

    def __post_init__(self) -> None:
        check(self.seed >= 0, "seed", self.seed, "0 or more")
        check(0 < self.participation <= 1, "participation", self.participation, "in (0, 1]")
        check(self.evaluate_every >= 1, "evaluate_every", self.evaluate_every, "1 or more")

    @cached_property
    def clients(self) -> Engine:
        """Where the clients work: the engine itself, without metering, checks or faults."""
        if not isinstance(self.engine, EngineSettings):
            return self.engine
        engine = make_engine(self.net, self.federation, self.engine)
        if self.privacy.clip is None:
            return engine
        return Private(engine, self.privacy, cohort=self.cohort_size)

    @property
    def cohort_size(self) -> int:
        """How many clients are asked in a round."""
        return max(1, round(self.participation * self.federation.num_clients))

    def start(self, num_rounds: int) -> State:
        """The state before the first round."""
        check(num_rounds >= 1, "rounds", num_rounds, "1 or more")
        return first_state(
            self.algorithm,
            self.net,
            self.federation.num_clients,
            num_rounds,
            self.participation,
            self.seed,
            self.federation.groups,
        )

    def rounds(
        self, num_rounds: int, state: State | None = None, first: int = 0
    ) -> Iterator[tuple[State, Record]]:
        """The state after each round and what was measured in it.

        To go on where a run stopped, give its last state and the number of the round to come.
        Raises `QuorumError` when too few clients give a usable reply.
        """
        for after, record, _ in self.scored_rounds(num_rounds, state, first):
            yield after, record

    def scored_rounds(
        self, num_rounds: int, state: State | None = None, first: int = 0
    ) -> Iterator[tuple[State, Record, ClientScores | None]]:
        """As `rounds`, with the scores of every client where the round was evaluated."""
        state = self.start(num_rounds) if state is None else state
        meter = Metered(Faulty(self.clients, self.faults) if self.faults.any else self.clients)
        guard = Guarded(meter, self.limits)
        for number in range(first, num_rounds):
            began = perf_counter()
            context = self.context(number, num_rounds)
            try:
                state = drive(self.algorithm.round(state, context), guard)
            except QuorumError as error:
                raise QuorumError(f"round {number}: {error}") from None
            seconds = perf_counter() - began
            due = (number + 1) % self.evaluate_every == 0 or number + 1 == num_rounds
            scores = self.scores(state, context) if due else None
            record = make_record(
                number,
                scores,
                state.labels.numpy() if scores is None else scores.clusters,
                self.federation.groups,
                meter.take(),
                guard.take(),
                seconds,
                self.algorithm.measure(state),
                len(state.models),
            )
            yield state, record, scores

    def assign(self, state: State) -> Assigned:
        """How well these clients fit each cluster of a state they had no part in.

        The run's federation is one of newcomers: `replace(run, federation=newcomers)`. An engine
        object of your own must hold the newcomers, too.
        """
        everyone = self.context(0, 1).everyone
        assigned: Assigned = drive(self.algorithm.assign(state, everyone), self.clients)
        return assigned

    def scores(self, state: State, context: Context) -> ClientScores:
        """How each client is served by this state. Costs no metered traffic."""
        return drive(score(self.algorithm, state, context), self.clients)

    def context(self, number: int, num_rounds: int) -> Context:
        """What this round may know, its cohort among it."""
        size = self.federation.num_clients
        rng = generator(self.seed, Stream.COHORT, number)
        cohort = torch.from_numpy(np.sort(rng.choice(size, self.cohort_size, replace=False)))
        return Context(
            number,
            num_rounds,
            cohort,
            size,
            self.seed,
            self.net.layout,
            self.federation.input_shape,
            self.federation.num_outputs,
        )


def first_state(
    algorithm: Algorithm[Any],
    net: Net,
    num_clients: int,
    num_rounds: int,
    participation: float,
    seed: int,
    groups: NDArray[np.int64] | None,
) -> State:
    """The state of a method before the first round."""
    setup = Setup(
        num_clients,
        num_rounds,
        participation,
        net.layout,
        lambda number: net.new(seed_of(seed, Stream.MODEL, number)),
        seed_of(seed, Stream.SETUP),
        None if groups is None else torch.from_numpy(groups),
    )
    state: State = algorithm.init(setup)
    return state


@dataclass(frozen=True)
class Experiment:
    """Everything needed to make a run again."""

    scenario: Scenario
    model: Model
    algorithm: Algorithm[Any]
    name: str = "experiment"
    description: str = ""
    seed: int = 0
    rounds: int = 100
    participation: float = 1.0
    evaluate_every: int = 1
    checkpoint_every: int = 1  # rounds
    engine: EngineSettings = field(default_factory=EngineSettings)
    limits: Limits = field(default_factory=Limits)
    faults: Faults = field(default_factory=Faults)
    privacy: Privacy = field(default_factory=Privacy)

    def __post_init__(self) -> None:
        fine = bool(self.name) and not set(self.name) & set("/\\\0") and self.name[0] != "."
        check(fine, "name", self.name, "a name for a folder")
        check(self.seed >= 0, "seed", self.seed, "0 or more")
        check(self.rounds >= 1, "rounds", self.rounds, "1 or more")
        check(0 < self.participation <= 1, "participation", self.participation, "in (0, 1]")
        check(self.evaluate_every >= 1, "evaluate_every", self.evaluate_every, "1 or more")
        check(self.checkpoint_every >= 1, "checkpoint_every", self.checkpoint_every, "1 or more")

    def with_seed(self, seed: int) -> Experiment:
        """The same experiment under another seed."""
        return replace(self, seed=seed)

    def open(self, sources: Sources) -> Run:
        """Build the federation and the network: the run, before its first round."""
        return self.run(self.scenario.build(self.seed, sources), self.engine)

    def run(self, federation: Federation, engine: EngineSettings | Engine) -> Run:
        """The run on this federation, whose clients work there."""
        shape, outputs = federation.input_shape, federation.num_outputs
        return Run(
            self.algorithm,
            federation,
            Net(lambda: self.model.build(shape, outputs), federation.objective),
            self.seed,
            self.participation,
            self.evaluate_every,
            engine,
            self.limits,
            self.faults,
            self.privacy,
        )
