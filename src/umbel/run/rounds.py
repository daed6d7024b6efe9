"""One method on one federation under one seed: an iterator of its rounds, in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from operator import length_hint
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.algorithms.base import OPEN, Algorithm, Assigned, KeptState, Known, Setup, State
from umbel.algorithms.local_only import LocalOnly
from umbel.algorithms.restarts import Restarts, innermost
from umbel.algorithms.watched import Watched
from umbel.checks import check, naming, nearest
from umbel.client.metrics import check_metrics
from umbel.client.net import Net
from umbel.client.work.local_training import trainings
from umbel.data.federation import Federation
from umbel.data.labels import check_trainable
from umbel.data.sources import Sources
from umbel.engines.choice import EngineSettings
from umbel.engines.metering import Metered
from umbel.engines.own_training import Individually, OwnTraining
from umbel.engines.privacy import Privacy
from umbel.engines.remembering import Remembering
from umbel.engines.replies.attacks import Attack
from umbel.engines.replies.claims import NOT_KNOWN, Sizes, sizes_by_split
from umbel.engines.replies.faults import Faults, Faulty
from umbel.engines.replies.guarded import Guarded
from umbel.engines.replies.validation import Limits
from umbel.flow import (
    Engine,
    Flow,
    Layer,
    Replies,
    Request,
    are_elsewhere,
    drive,
    returned,
    through,
)
from umbel.notebooks import named
from umbel.preflight.examples import check_batches
from umbel.preflight.network import advice, check_gradients_are_on
from umbel.run.evaluation import Evaluated, clusters_of, evaluated
from umbel.run.membership import AmongMembers, Attendance, Members, Membership
from umbel.run.metrics import as_measures, check_names, names_of
from umbel.run.participation import Participation, as_participation, cohort_of, smallest_share
from umbel.run.personal import Personal
from umbel.run.records import Record, make_record
from umbel.run.returned_values import as_assigned, as_given, as_state, check_judged
from umbel.run.scores import ClientScores, Judged, number_or_none, of_honest, score
from umbel.run.start import (
    NumRounds,
    check_private,
    check_settings,
    engine_of,
    first_state,
    setup_of,
    total,
    unsaid,
)
from umbel.run.story import moved, told
from umbel.run.time import InTime, Time
from umbel.run.wrappers import watched
from umbel.server.ask import Context
from umbel.settings import Settings, argument, hinting
from umbel.summary import few, settings

log = logging.getLogger(__name__)

T = TypeVar("T")

RATIO_ELSEWHERE = 4.0
"""Default of `limits.max_norm_ratio` for clients on other machines."""

SAMPLED = 200
"""Evidence samples at most this many clients."""


@dataclass(frozen=True)
class Opened:
    """The experiment that a run was opened from, with the federation and the net that it gave."""

    experiment: Settings
    sources: Sources
    federation: Federation
    net: Net


@dataclass(frozen=True)
class Rounds(Settings):
    """A run in memory: `umbel.Run` adds the folder that keeps it.

    On one machine, runs with equal fields give equal records bit for bit, except for times. Values
    out of range, and settings that can't work together, raise `UsageError`.
    """

    algorithm: Algorithm[Any]  #: the method
    federation: Federation  #: the clients and their examples
    net: Net  #: the network that is trained
    _: KW_ONLY
    seed: int = 0  #: seed of all random numbers
    #: share of the clients asked in each round, in (0, 1], or how they are drawn
    participation: float | Participation = 1.0
    #: rounds between evaluations; the last round is always evaluated, and where clients have
    #: validation examples, it alone is on test examples
    evaluate_every: int = 1
    #: where clients work: settings, or an engine
    engine: EngineSettings | Engine = field(default_factory=EngineSettings)
    limits: Limits = field(default_factory=Limits)  #: limits on clients' replies
    faults: Faults = field(default_factory=Faults)  #: faults to simulate
    attack: Attack = field(default_factory=Attack)  #: attacks to simulate
    #: clipping and noise of the clients in this process
    privacy: Privacy = field(default_factory=Privacy)
    #: what is measured beside loss and accuracy: "log-loss", "perplexity", "macro-f1", "auroc",
    #: "mae", "r2", or your own as "module:function"
    metrics: tuple[str, ...] = ()
    personal: Personal | None = None  #: how clients fine-tune at the end; None: they don't
    own_training: tuple[OwnTraining, ...] = ()  #: clients that train in their own way
    time: Time | None = None  #: the steps of a federation with time; None: it has none
    #: who is there in each round; None: everybody
    membership: Membership | None = None
    #: the experiment that `Experiment.open` made this run of, which a folder then holds
    opened: Opened | None = field(default=None, repr=False, compare=False)
    #: the federation that is used: with `personal`, validation examples are set apart
    divided: Federation = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "divided", self.federation)
        private = self.privacy.clip is not None
        check_settings(self.seed, self.participation, self.evaluate_every, private)
        expected = "a Net; write Net(lambda: MyModule(...))"
        check(isinstance(self.net, Net), "net", self.net, expected)
        object.__setattr__(self, "algorithm", watched(self.algorithm, self.limits.quarantine))
        check_private(self.algorithm, self.privacy, self.net)
        if self.time is not None:
            about = self.federation, self.personal, self.participation
            self.time.check_with(*about, are_elsewhere(self.engine))
        elif self.federation.num_steps is not None:
            how = "a Time, as these clients have steps: write time=umbel.Time(), or use one step"
            check(False, "time", None, f"{how}, federation.at(step)")
        if self.membership is not None:
            self.membership.check_for(self.algorithm, self.participation)
        check_names(self.metrics)
        check_metrics(self.metrics, self.net.objective)
        # How many clients there are is checked before the first round: a run may be of newcomers.
        self.algorithm.check(Known(smallest_share(self.participation), layout=self.net.layout))
        if self.personal is not None:
            self.personal.check_for(self.algorithm, self.privacy)
            given = not isinstance(self.engine, EngineSettings)  # with examples of its own
            apart = self.personal.set_apart(self.federation, self.seed, given)
            object.__setattr__(self, "divided", apart)

    def __repr__(self) -> str:
        share = "" if self.participation == 1 else f", participation {self.participation:g}"
        method = settings(self.algorithm)
        return f"Run: {method}, seed {self.seed}{share}; {self.federation!r}; {self.net!r}"

    def _repr_html_(self) -> str:
        lines = [("method", settings(self.algorithm)), ("federation", repr(self.federation))]
        lines += [("network", repr(self.net)), ("seed", str(self.seed))]
        lines += [("participation", f"{self.participation:g}")]
        return named(lines, f"Run of {type(self.algorithm).__name__}")._repr_html_()

    @cached_property
    def clients(self) -> Engine:
        """The engine itself, without metering, checks or faults."""
        tuned = [] if self.personal is None else self.personal.works()
        # Built at the first use: `Run` checks its settings without loading a device or a worker.
        there = self.attack.poisoned(self.divided, self.seed)
        given = self.engine, self.net, there, [self.algorithm, *tuned]
        return engine_of(*given, self.privacy, self.cohort_size, self.metrics)

    @property
    def cohort_size(self) -> int:
        """Largest number of clients that are asked in a round."""
        return as_participation(self.participation).size(self.federation.num_clients)

    @cached_property
    def attendance(self) -> Attendance:
        """Who is there in each round: an engine elsewhere may know, and without membership all."""
        if told := getattr(self.engine, "attendance", None):
            there: Attendance = told
            return there
        return (self.membership or Membership()).attendance(self.federation.names, self.seed)

    def members(self, number: int) -> Members:
        """The members in a round."""
        return self.attendance.at(number)

    def now(self) -> Rounds:
        """The run with the clients that its engine knows by now."""
        there: Federation = getattr(self.engine, "federation", None) or self.federation
        return self if there is self.federation else replace(self, federation=there)

    def client_numbers(self, number: int) -> NDArray[np.int64]:
        """The number in the federation of each client of the state after a round."""
        return self.members(number).clients

    def setup(self, num_rounds: int, number: int = 0) -> Setup:
        """What a method may know of the members in a round."""
        there, clients = self.federation, self.members(number).clients

        def planted(numbers: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
            # Numbers may have gaps; those of a group are the same in all rounds.
            if numbers is None:
                return None
            return np.unique(numbers, return_inverse=True)[1].reshape(numbers.shape)[clients]

        return setup_of(
            self.net,
            num_rounds,
            self.participation,
            self.seed,
            tuple(there.names[client] for client in clients),
            planted(there.groups),
            planted(there.concepts),
            1 if self.time is None else self.time.num_steps(there),
        )

    def start(self, num_rounds: NumRounds) -> State:
        """Return the state before the first of `num_rounds` rounds."""
        most = total(num_rounds)
        if self.time is None and not are_elsewhere(self.engine):
            train = self.divided.train
            check_trainable(list(map(train.of, range(len(train.sizes)))), self.divided.names)
        if self.personal is not None:
            self.personal.check_data(self.net, self.divided, are_elsewhere(self.engine))
        check_gradients_are_on()  # an engine that was made before does not ask again
        there = self.federation
        if self.time is not None:
            self.time.check_for(there, num_rounds)
        if not there.test.sizes.any():
            log.warning("no client has test examples: neither loss nor accuracy is measured")
        return first_state(self.algorithm, self.net, self.setup(most))

    @hinting
    def rounds(
        self, num_rounds: NumRounds, state: State | None = None, first: int = 0
    ) -> Iterator[tuple[State, Record]]:
        """Do the rounds one by one: yields the state after each, and its record.

        To go on where a run stopped, give its last state and the number of the round to come.
        With "until-stopped" they do not end. Raises `QuorumError` when too few clients give a
        usable reply, and `UsageError` if the state is of another run.
        """
        most, first = total(num_rounds), argument("first", first, int)
        check(first >= 0, "first", first, "0 or more")
        expected = "0 without a state: give the state after the round before it"
        check(state is not None or first == 0, "first", first, expected)
        begun = self.start(num_rounds)
        state = begun if state is None else as_given(state, begun, self.members(first).before)
        scored = self.scored_rounds(most, state, first)
        left = 0 if most == OPEN else most - first
        return Counted(((after, record) for after, record, _ in scored), left)

    def scored_rounds(
        self, num_rounds: int, state: State, first: int
    ) -> Iterator[tuple[State, Record, ClientScores | None]]:
        """Do the rounds, and yield their scores on test examples, too, if they have such."""
        loop = Loop(self, num_rounds)
        for number in range(first, num_rounds):
            scored = returned(loop.round(number, state), self.answer)
            state = scored[0]
            yield scored

    def answer(self, request: Request) -> Replies:
        """Have the clients answer a request as it is: without metering, checks or faults."""
        return self.clients.send(request)

    def remembering(self) -> Engine:
        """Return the engine, which keeps what an evaluation computes if the next round can use it.

        It can if all clients take part in every round. Nothing is kept for clients on other
        machines, which would have to keep it themselves, nor with simulated faults or privacy.
        """
        here = isinstance(self.engine, EngineSettings) or getattr(self.engine, "beside", False)
        same = as_participation(self.participation).fixed_size
        whole = same and self.cohort_size == self.federation.num_clients
        changes = (
            self.faults.any
            or self.attack.any
            or self.time is not None
            or self.membership is not None
        )
        if not here or not whole or changes or self.privacy.clip is not None:
            return self.clients
        # Such as IFCA's losses: `serve` asks for those that the next round begins with.
        return Remembering(self.clients, self.federation.num_clients)

    def assign(self, state: State, rounds: int = 1) -> Assigned:
        """Find how well these clients fit each cluster of a state that they had no part in.

        The run's federation is one of newcomers: `replace(run, federation=newcomers)`. An engine
        object of your own must hold the newcomers, too. `rounds` is how many led to the state:
        where learning rates decay, newcomers are compared at that of the last. A client without a
        usable reply is left out, and a warning names it. `privacy` is for training: no noise here.
        """
        check(argument("rounds", rounds, int) >= 1, "rounds", rounds, "1 or more")
        check_judged(state, self.net)
        # The run's settings may name its clients, and these are others.
        all_there = replace(self, membership=None)
        everyone = all_there.context(rounds - 1, rounds, torch.arange(self.federation.num_clients))
        lack = "not assigned to a cluster"
        found = asked(self, self.algorithm.assign(state, everyone), lack, everyone.step)
        return as_assigned(found, state, everyone)

    def scores(self, state: State, context: Context, on: Judged = "test") -> ClientScores:
        """Evaluate how each client is served by this state. It costs no metered traffic."""
        check_judged(state, self.net)
        judge = self.in_round(self.judge(self.remembering()), context)
        return drive(score(self.algorithm, state, context, on, self.metrics), judge)

    def judge(self, clients: Engine, sizes: Sizes = NOT_KNOWN) -> Guarded:
        """Checks replies in evaluations of the models that clients are served."""
        names = self.federation.names
        return Guarded(clients, self.limits.unbounded, net=self.net, names=names, sizes=sizes)

    @property
    def bounds(self) -> Limits:
        """The limits: steps of clients elsewhere are bounded unless it is said."""
        if are_elsewhere(self.engine) and self.limits.max_norm_ratio is None:
            return replace(self.limits, max_norm_ratio=RATIO_ELSEWHERE)
        return self.limits

    def in_round(self, engine: Layer, context: Context) -> Layer:
        """The engine of a round: clients that are there, with the examples of its step of time."""
        if self.time is not None:
            engine = InTime.at(engine, self.federation, self.time, context.step)
        if self.membership is None:
            return engine
        return AmongMembers(engine, self.members(context.round), self.federation.num_clients)

    def groups(self, number: int) -> NDArray[np.int64] | None:
        """The planted group (M,) of each client in a round, None if unknown."""
        concepts = self.federation.concepts
        if self.time is None or concepts is None:
            return self.federation.groups
        return concepts[:, self.time.step(number)]

    def clients_at(self, number: int) -> Federation:
        """The federation, with the groups and the numbers of examples of a round's step of time."""
        if self.time is None:
            return self.divided
        sizes, train = self.time.sizes(self.federation, number), self.divided.train
        if sizes is not None:
            offsets = np.concatenate([[0], sizes.cumsum()])
            train = replace(train, offsets=offsets, steps=None)
        return replace(self.divided, train=train, groups=self.groups(number))

    def here(self, number: int) -> NDArray[np.int64]:
        """The clients that are there; with time, those that have examples of the round's step."""
        steps, members = self.federation.train.steps, self.members(number)
        there = members.clients[members.here]
        if self.time is None or steps is None:
            return there
        return np.intersect1d(np.flatnonzero(steps[:, self.time.step(number)]), there)

    def context(self, number: int, num_rounds: int, cohort: Tensor | None = None) -> Context:
        """Return the context of a round, with these clients, or with its cohort."""
        sizes = None
        if self.time is not None:
            sizes = self.time.sizes(self.federation, number)
        members = self.members(number)
        if cohort is None:
            here = None if self.membership is None else members.clients[members.here]
            given = self.participation, number, self.federation, self.seed
            cohort = torch.from_numpy(members.here)[cohort_of(*given, sizes, here)]
        when = {} if self.time is None else self.time.when(self.federation, number)
        return Context(
            **when,
            round=number,
            num_rounds=num_rounds,
            cohort=cohort,
            num_clients=len(members.clients),
            seed=self.seed,
            layout=self.net.layout,
            input_shape=self.federation.input_shape,
            num_outputs=self.federation.num_outputs,
            sample=sample,
            max_share=self.limits.max_share,
            max_norm_ratio=self.bounds.max_norm_ratio,
        )


class Loop:
    """The rounds of a run, each of which is a flow; its requests are for `Rounds.answer`."""

    def __init__(self, run: Rounds, num_rounds: int) -> None:
        self.num_rounds = num_rounds
        self._begin(run)

    def _begin(self, run: Rounds) -> None:
        self.run = run
        self.clients = clients = run.remembering()
        method, elsewhere = innermost(run.algorithm), are_elsewhere(clients)
        # With privacy, nodes elsewhere do not tell their numbers of examples.
        told = elsewhere and run.privacy.clip is None and run.time is None
        sizes = sizes_by_split(run.divided) if told else NOT_KNOWN
        train = None if elsewhere and not told else run.divided.train
        about = run.federation.names, run.federation.groups, run.seed
        self.attacked = run.attack.around(clients, *about) if run.attack.any else None
        inside = self.attacked or clients
        self.meter = Metered(Faulty(inside, run.faults) if run.faults.any else inside, train)
        # Clients that train alone move no other's model.
        limits = run.limits if isinstance(method, LocalOnly) else run.bounds
        self.guard = Guarded(
            self._individually(method) if run.own_training else self.meter,
            limits if method.uses_example_counts else replace(limits, max_share=1.0),
            partial(advice, run.divided),
            run.faults,
            elsewhere or run.attack.any,  # attackers know what all others send
            pooled=method.pools,
            net=run.net,
            sizes=sizes,
            changed=getattr(clients, "changed", {}),
            names=run.divided.names,
        )
        self.judge = run.judge(clients, sizes)
        # One client's largest share in means over examples: counts of this process are trusted.
        self.share = run.limits.max_share if elsewhere else 1.0

    def _individually(self, method: Any) -> Individually:
        """Return the engine that has clients train in ways of their own. May raise `UsageError`."""
        names, found = self.run.divided.names, dict[int, OwnTraining]()
        trains = any(each for work in method.sends for each in trainings(work))
        fine = trains and not are_elsewhere(self.clients)
        expected = "a method whose clients train by `local`, and in this process"
        check(fine and hasattr(method, "local"), "own_training", type(method).__name__, expected)
        for number, own in enumerate(self.run.own_training):
            for name in own.clients:
                place = names.index(name) if name in names else -1
                expected = f"a client, named once; {nearest(name, names)}"
                fine = place not in {-1, *found}
                check(fine, f"own_training[{number}].clients", name, expected)
                found[place] = own
            theirs = self.run.divided.pick(place for place, way in found.items() if way is own)
            how = replace(method, local=own.of(method.local, method.local))
            check_batches(self.run.net, theirs, how)
        return Individually(self.meter, found, method.local)

    def round(self, number: int, state: State) -> Flow[tuple[State, Record, ClientScores | None]]:
        """Do a round: the state after it, its record, and the scores on the test, if it had one."""
        began, members = perf_counter(), self.run.members(number)
        # Clients that the federation did not have may have come from elsewhere.
        if (now := self.run.now()) is not self.run:
            self._begin(now)
        run, clients, meter = self.run, self.clients, self.meter
        context = run.context(number, self.num_rounds)
        if self.attacked is not None:
            self.attacked.round = number
        # Step 1: the method's round. The guard meters, checks and bounds the replies.
        with naming(f"round {number}"):
            before = self._followed(state, members)
            guard = run.in_round(self.guard, context)
            after = yield from through(self._round(before, context, members), guard)
            state = as_state(after, context, run.net.dtype, before)
        # The time that an evaluation has saved the round counts as the round's own.
        spared = clients.take() if isinstance(clients, Remembering) else 0.0
        meter.seconds += spared
        seconds = perf_counter() - began + spared
        # Step 2: evaluation of the models that clients are served, if it is due in this round.
        last = number + 1 == self.num_rounds
        ends = run.time is not None and (number + 1) % run.time.rounds == 0
        due = last or ends or (number + 1) % run.evaluate_every == 0
        on = self._judged_on(last) if due else ()
        with naming(f"round {number}"):
            found = yield from self._evaluated(state, context, on)
            clusters = clusters_of(found, run.algorithm, state, context)
            if clusters is not None and not found:
                everyone = np.full(run.federation.num_clients, -1)
                everyone[members.clients] = clusters
                clusters = everyone
            measures = as_measures(run.algorithm.measure(state), names_of(run))
        # Step 3: the record, with all that was counted since the round before.
        missing, refused, bounded = self.guard.take()
        groups, here = run.groups(number), run.here(number)
        record = make_record(
            number,
            None if clusters is None else clusters[here],
            None if groups is None else groups[here],
            found.get("test"),
            validation=found.get("validation"),
            spent=meter.take(),
            clustering_seconds=context.clustering.seconds,
            missing=missing,
            refused=refused,
            bounded=bounded,
            seconds=seconds,
            measures=measures,
            num_models=len(state.models),
            share=self.share,
            step=None if run.time is None else context.step,
        )
        if run.membership is not None:
            stayed = torch.arange(len(members.kept) if number else 0)  # before newcomers, in order
            others = members.clients[moved(before, state, stayed).numpy()]
            record = replace(record, joined=members.joined, left=members.left)
            record = replace(record, moved=tuple(others.tolist()))
        if ends or (last and run.time is not None):
            record = record.at_end(found["test"], here)
        record = self._watched(self._of_honest(record, found), state, members)
        if log.isEnabledFor(logging.INFO):
            log.info("%s", told(record, before, state, len(context.cohort)))
        return state, record.unjudged(*self.judge.take()), found.get("test")

    def _watched(self, record: Record, state: State, members: Members) -> Record:
        """The record with clients' suspicion, and with those in quarantine, if they are watched."""
        method = self.run.algorithm
        if isinstance(method, Restarts):
            state, method = method.inner(state), method.of
        if not isinstance(method, Watched) or not isinstance(state, KeptState):
            return record
        scores = np.full(self.run.federation.num_clients, np.nan)
        scores[members.clients] = state.kept[:, 0].numpy().round(3)
        aside = {int(members.clients[n]): why for n, why in method.set_aside(state).items()}
        refused = dict(sorted({**record.refused, **aside}.items()))
        told = tuple(map(number_or_none, scores.tolist()))
        return replace(record, refused=refused, suspicion=told)

    def _followed(self, state: State, members: Members) -> State:
        """The state before a round, with the rows of its members alone."""
        run, number = self.run, members.round
        if len(members.kept) == members.before == len(members.clients):
            return state
        setup, kept = run.setup(self.num_rounds, number), torch.from_numpy(members.kept)
        with unsaid():
            found = run.algorithm.members(state, kept, setup)
        after: State = as_state(found, setup, run.net.dtype, state, "members")
        return after

    def _round(self, state: State, context: Context, members: Members) -> Flow[Any]:
        """The method's round, after newcomers have been given clusters."""
        method = self.run.algorithm
        if len(members.newcomers):
            new = torch.from_numpy(members.newcomers)
            asked = context.asking(new, optional=True, use="compared")
            state = yield from method.admit(state, asked)
            as_state(state, context, self.run.net.dtype, state, "admit")
        return (yield from method.round(state, context))

    def closing(self, record: Record, state: State) -> Flow[tuple[Record, ClientScores]]:
        """Evaluate the last round of a run that stopped early: its record, and its test scores.

        When the round was done it was not known to be the last. `state` is the one after it.
        """
        check_judged(state, self.run.net)
        context = self.run.context(record.round, self.num_rounds)
        found = yield from self._evaluated(state, context, self._judged_on(last=True))
        record = record.unjudged(*self.judge.take())
        if "validation" in found:
            record = record.validated(found["validation"])
        groups, here = self.run.groups(record.round), self.run.here(record.round)
        record = record.evaluated(found["test"], groups, self.share, here)
        if record.step is not None:
            record = record.at_end(found["test"], here)
        return self._of_honest(record, found), found["test"]

    def _of_honest(self, record: Record, found: Evaluated) -> Record:
        """The record with the accuracies of clients that don't attack, if there are attackers."""
        if self.attacked is None or "test" not in found:
            return record
        groups = self.run.groups(record.round)
        more = of_honest(found["test"].accuracy, self.attacked.clients, groups)
        return replace(record, measures={**record.measures, **more})

    def _judged_on(self, last: bool) -> tuple[Judged, ...]:
        """Return the splits that a round is evaluated on.

        If there are validation examples, test examples are used in the last round alone, so that
        nothing can be chosen by them.
        """
        if self.run.divided.validation is None:
            return ("test",)
        return ("validation", "test") if last else ("validation",)

    def _evaluated(self, state: State, context: Context, on: Sequence[Judged]) -> Flow[Evaluated]:
        run = self.run
        settings = run.metrics, run.personal, run.limits.max_value
        flow = evaluated(run.algorithm, state, context, on, *settings)
        found = yield from through(flow, run.in_round(self.judge, context))
        if run.membership is None:
            return found
        members, count = run.members(context.round), run.federation.num_clients
        return {split: scores.among(members.clients, count) for split, scores in found.items()}


def asked(run: Rounds, flow: Flow[T], lack: str, step: int = 0) -> T:
    """Run a flow outside of a run's rounds, such as the assignment of newcomers.

    There is no record that could name absent clients, so a warning does, with the reasons; `lack`
    says what became of them. Clients answer from all of their training examples, those set apart
    for fine-tuning included, and without noise, which is for training; with time, from those that
    they keep at a step.
    """
    plain = run.divided is run.federation and run.privacy.clip is None
    whole = run if plain else replace(run, personal=None, privacy=Privacy())
    guard = run.judge(whole.clients)
    timed = None if run.time is None else InTime.at(guard, run.federation, run.time, step)
    found = drive(flow, timed or guard)
    missing, refused, _ = guard.take()
    reasons = dict.fromkeys(missing, "did not answer") | refused
    if reasons:
        names = run.federation.names
        told = [f"{names[client]} ({why})" for client, why in sorted(reasons.items())]
        log.warning("%s for lack of a usable reply: %s", lack, few(told))
    return found


def sample(count: int) -> Tensor:
    """Return positions (N,) from 0 to count - 1: all, or `SAMPLED` of them, evenly spread."""
    return torch.linspace(0, count - 1, min(count, SAMPLED), dtype=torch.double).round().long()


class Counted(Iterator[T]):
    """An iterator that knows the largest number of values left: `operator.length_hint` gives it.

    It is 0 if the values do not end.

    Progress bars use it. A run may end before, at a goal or when its time is up.
    """

    def __init__(self, values: Iterator[T], most: int) -> None:
        self._values = values
        self._left = iter(range(most))

    def __next__(self) -> T:
        next(self._left, None)
        return next(self._values)

    def __length_hint__(self) -> int:
        return length_hint(self._left)
