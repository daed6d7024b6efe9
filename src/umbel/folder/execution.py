"""Run an experiment in a folder, so that it can be killed at any moment and resumed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import perf_counter
from typing import Literal, TypeAlias

from umbel.algorithms.base import OPEN, State
from umbel.checks import QuorumError, UsageError, check, naming
from umbel.data.sources import Sources
from umbel.engines.replies.guarded import absences
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.made_in_python import OwnData
from umbel.experiment.places import note, sources_of
from umbel.experiment.toml_file import plain
from umbel.files.atomic import PARTIAL, remove_partial
from umbel.files.seals import AGAIN
from umbel.flow import Flow, Replies, Request, Steps, answered, are_elsewhere
from umbel.folder import checkpoint
from umbel.folder.checkpoint_parts import NO_PARTS, Parts
from umbel.folder.clients_file import write_rows
from umbel.folder.how_to_continue import OVER_FLOWER, over_flower, way_on
from umbel.folder.identity import Origin, check_origin, check_sizes, origin
from umbel.folder.run_folder import RunFolder
from umbel.run.lockstep import is_faster, lockstep_of
from umbel.run.records import Record
from umbel.run.rounds import Loop, Rounds
from umbel.run.scores import ClientScores
from umbel.run.stopping import Budget, Stop
from umbel.run.wrappers import under
from umbel.settings import hinting
from umbel.summary import counted
from umbel.version import differing

log = logging.getLogger(__name__)

Done: TypeAlias = tuple[State, Record]
"""The state after a round, and its record."""

MOST_RUNS_TOGETHER = 100
"""Largest number of runs that go side by side."""


@dataclass(frozen=True)
class Plan:
    """The plan of a session, which is read and checked once."""

    experiment: ExperimentSettings  # as the folder has it
    origin: Origin  # what its checkpoints must have been made of
    budget: Budget  # when to stop before the last round

    @classmethod
    def of(
        cls, folder: RunFolder, run: Rounds, experiment: ExperimentSettings | None = None
    ) -> Plan:
        """The plan for this run; `experiment` is the folder's, if it was read already."""
        made = folder.experiment if experiment is None else experiment
        come = made.membership is not None and are_elsewhere(run.engine)
        return cls(made, origin(made, run.divided, run.net, come), folder.budget)


@hinting
def execute(
    folder: RunFolder,
    sources: Sources | None = None,
    workers: int | Literal["auto"] | None = None,
) -> Iterator[Record]:
    """Do the remaining rounds of a folder's experiment, and yield the record of each.

    >>> file = umbel.find_experiment("flacc-digits")
    >>> folder = umbel.RunFolder.create("runs/short", umbel.read(file, ["rounds=2"]))
    >>> [record.round for record in umbel.execute(folder)]
    [0, 1]

    It yields nothing if the run is finished. If a checkpoint is due after a round, it is on disk
    before the record is yielded. Data sets come from `sources`; by default from the data directory
    that the folder notes, or from `Sources.default`.
    `workers` replaces the experiment's `engine.workers` for this call; results do not depend on it.
    Raises `UsageError` for a run whose data were made in Python, and where another run has taken
    the folder since it was created.
    """
    with unfinished(folder) as goes_on:
        if goes_on:
            found = sources_of(folder.path) if sources is None else sources
            yield from records_of(folder, *opened(folder, found, workers))


def advance(folder: RunFolder, run: Rounds) -> Iterator[Record]:
    """Do as `execute` for a run that the caller has opened, such as one over Flower."""
    yield from (record for _, record in advance_states(folder, run))


def advance_states(folder: RunFolder, run: Rounds) -> Iterator[Done]:
    """Do as `advance`, and yield the state after each round, too."""
    with unfinished(folder) as goes_on:
        if goes_on:
            yield from states_of(folder, run, Plan.of(folder, run, folder.checked()))


@contextmanager
def unfinished(folder: RunFolder) -> Iterator[bool]:
    """Lock a folder in the `with` block if rounds are left; yield True then.

    A finished run is not locked: it may be in a place where nothing can be written.
    """
    with nullcontext() if folder.finished else folder.locked():
        if finished := folder.finished:
            folder.checked()
        yield not finished


def opened(
    folder: RunFolder,
    sources: Sources,
    workers: int | Literal["auto"] | None = None,
    verb: str = "resume",
) -> tuple[Rounds, Plan]:
    """Open the run of a folder, and return its plan, too. `verb` is a command for messages.

    The clients work in so many `workers`, by default those of the experiment asked for. Raises
    `UsageError` if the run's data were made in Python, or the folder has another experiment.
    """
    if over_flower(folder.path):
        raise UsageError(f"{folder.path}: {OVER_FLOWER}")
    experiment = folder.checked(importing=True)
    if isinstance(experiment.scenario, OwnData) and folder.begun:
        how = f"go on there by {way_on(folder.path, verb)}"
        raise UsageError(f"{folder.path}: was made in Python, from data that no file holds: {how}")
    if workers is None:
        workers = (folder.asked or experiment).engine.workers
    run = replace(experiment, engine=replace(experiment.engine, workers=workers)).open(sources)
    plan = Plan.of(folder, run, experiment)
    plan.budget.check_for(run)
    return run, plan


def execute_together(
    folders: Sequence[RunFolder], sources: Sources, report: Callable[[Record], None]
) -> bool:
    """Do the rest of several runs side by side; return False, without work, if not faster.

    At most `MOST_RUNS_TOGETHER` runs go side by side: each needs an open file, which systems limit.

    `report` is called with the records of the last of the runs. The seconds in records are each
    run's share.
    """
    if len(folders) > MOST_RUNS_TOGETHER:
        return False
    with ExitStack() as locks:
        for folder in folders:
            locks.enter_context(folder.locked())
        # Asked inside the locks: another process may have finished some meanwhile.
        left = [folder for folder in folders if not folder.finished]
        if len(left) < 2 or not is_faster((first := opened(left[0], sources))[0]):
            return False
        each = [first, *(opened(folder, sources) for folder in left[1:])]
        runs = [run for run, _ in each]
        lockstep = lockstep_of(runs)
        if lockstep is None:
            return False

        def go_on(folder: RunFolder, run: Rounds, plan: Plan) -> Steps[Done, None]:
            with naming(f"{plan.experiment.name} seed {plan.experiment.seed}"):
                yield from _session(folder, run, plan, len(left))

        plans = [plan for _, plan in each]
        together = zip(left, lockstep.with_engines(runs), plans, strict=True)
        for number, (_, record) in lockstep.drive([go_on(*one) for one in together]):
            if left[number] is left[-1]:
                report(record)
        return True


def records_of(folder: RunFolder, run: Rounds, plan: Plan) -> Iterator[Record]:
    """Do the remaining rounds in a locked folder."""
    yield from (record for _, record in states_of(folder, run, plan))


def states_of(
    folder: RunFolder, run: Rounds, plan: Plan, answer: Callable[[Request], Replies] | None = None
) -> Iterator[Done]:
    """Do the remaining rounds in a locked folder; `answer` takes the place of the run's own."""
    yield from answered(_session(folder, run, plan), answer or run.answer)


def _session(folder: RunFolder, run: Rounds, plan: Plan, sharing: int = 1) -> Steps[Done, None]:
    """Do the remaining rounds, in a process that several runs share."""
    began, clock = datetime.now(UTC), perf_counter()
    data_dir = None if run.opened is None else run.opened.sources.data_dir
    note(folder.path, plan.experiment, plain(plan.experiment), data_dir)
    full = False
    try:
        run, scores = yield from _rounds(folder, run, plan, sharing, clock)
    except OSError:
        full = True  # errors of a full disk name the file that could not be written
        raise
    finally:
        with suppress(OSError) if full else nullcontext():
            seconds = (perf_counter() - clock) / sharing
            folder.sessions.note(began, seconds, plan.experiment.engine.precision)
    # Last, as it makes the run finished: one that was killed before still notes a session.
    write_rows(folder.file("clusters.csv"), run.clients_at(len(folder.records()) - 1), scores)


def _rounds(
    folder: RunFolder, run: Rounds, plan: Plan, sharing: int, clock: float
) -> Steps[Done, tuple[Rounds, ClientScores]]:
    """Do the rounds; return the run, whose clients may be more by now, and the last scores."""
    most, budget = plan.experiment.most_rounds, plan.budget
    with under("algorithm", run.algorithm):
        start = run.start(plan.experiment.rounds)
    # Step 1: go on from the last checkpoint, or start over without one.
    restored, first = restore(folder, run, start, plan.origin) if folder.begun else (None, 0)
    state = start if restored is None else restored
    # A stop that was written, or that a killed session had reached.
    stop = folder.stop or _stopped_already(folder, plan)
    last = most if stop is None else stop.rounds
    expected = f"{first} or more, as {first} are done"
    check(first <= last, f"{folder.settings.file}: rounds", last, expected)
    check(last <= most, f"{folder.file('stopped.json')}: damaged: rounds", last, f"at most {most}")
    loop = Loop(run, most)
    scores: ClientScores | None = None
    parts: Parts = NO_PARTS
    for number in range(first, last):
        before, done = state, number + 1
        state, whole, scores = yield from loop.round(number, before)
        # Step 2: is this the last round, by the plan, a goal or the time? Then it needs all
        # evaluations.
        record = whole.sharing_time(sharing)
        why = budget.reached(record) or budget.spent(perf_counter() - clock)
        stop = Stop(done, why) if why and done < last else stop
        ends = done == last or (stop is not None and done == stop.rounds)
        due = ends or done % plan.experiment.checkpoint_every == 0
        exports = due and most == OPEN
        if scores is None and (ends or exports):
            closed, scores = yield from loop.closing(record, state)
            record = closed if ends else record  # models alone need other rounds' scores
        # Step 3: on disk. The record before the checkpoint: killed between the two, the run repeats
        # the round and cuts its record off. The other order could lose a record.
        folder.lines.append(record)
        folder.evidence.note(run.algorithm, before, state, record.round, ends, run.client_numbers)
        if due:
            parts = folder.save(state, done, plan.origin, parts)
            if exports and scores is not None:
                folder.models.write(loop.run, scores)
            log.info("%s: checkpoint after %s", folder.path, counted(done, "round"))
        # After the checkpoint, which a stop must have; `_stopped_already` repeats it if this is
        # killed.
        if ends and stop is not None:
            folder.stop_at(stop)
        yield state, record
        if ends:
            break
    return loop.run, (yield from _finish(folder, loop, state, scores))


def _stopped_already(folder: RunFolder, plan: Plan) -> Stop | None:
    """The stop of a run that reached a goal but was killed before the stop was written."""
    records = folder.lines.read()
    why = plan.budget.reached(records[-1]) if records else None
    stop = Stop(len(records), why) if why and len(records) < plan.experiment.most_rounds else None
    if stop is not None:
        folder.stop_at(stop)
    return stop


def _finish(
    folder: RunFolder, loop: Loop, state: State, scores: ClientScores | None
) -> Flow[ClientScores]:
    """Write the results of the run except the last file; return the scores after the last round.

    `scores` is None unless the last round was done in this session. Raises `QuorumError` if clients
    elsewhere are to be asked again: not if the session before had the same silent and refused ones.
    """
    run, records = loop.run, folder.lines.read()
    last, record, again = len(records) - 1, records[-1], False
    silent = record.missing
    # The last round was done by a session that was killed before its results were written.
    if scores is None:
        # Where all were silent, it was in an evaluation that does not count.
        before = () if _all_were_silent(run, record) else record.missing
        found, scores = yield from loop.closing(replace(record, missing=()), state)
        silent, record = found.missing, found.unjudged(before, {}, {})
        again = not _all_were_silent(run, found) and _same_lack(record, records[-1])
        # Only a record without test scores is completed: others stay as they were written.
        if records[-1].loss is None:
            folder.lines.write([*records[:-1], record])
    if silent and not again:
        _check_answered(folder, run, record, scores)
    folder.evidence.note(run.algorithm, state, state, last, True, run.client_numbers)
    folder.finish(run, scores)
    return scores


def _all_were_silent(run: Rounds, record: Record) -> bool:
    return are_elsewhere(run.clients) and len(record.missing) == run.divided.num_clients


def _same_lack(record: Record, other: Record) -> bool:
    """Return True if the same clients are silent, and the same are refused, in both records."""
    return record.missing == other.missing and record.refused.keys() == other.refused.keys()


def _check_answered(folder: RunFolder, run: Rounds, record: Record, scores: ClientScores) -> None:
    """Raise `QuorumError` if no client elsewhere, some silent, could be judged in the end.

    Clients that all refuse, or that are in this process, would only do the same again.
    """
    judged = scores.num_examples.any() or not run.divided.test.sizes.any()
    if are_elsewhere(run.clients) and not judged:
        heard = not _all_were_silent(run, record)
        ends = ", and ends without test scores if it is the same again" * heard
        raise QuorumError(
            f"round {record.round}: no usable answer to the last evaluation: "
            f"{absences(record.missing, record.refused, run.divided.names)}; "
            f"the trained models are saved, and {way_on(folder.path)} asks again{ends}"
        )


def restore(
    folder: RunFolder, run: Rounds, template: State, made: Origin
) -> tuple[State | None, int]:
    """Restore the last checkpoint, and remove later records and files. Raises as `restorable`."""
    state, next_round = restorable(folder, run, template, made)
    for file in [*folder.path.glob(PARTIAL)]:  # of a process that was killed
        remove_partial(file)
    if state is not None:
        file = folder.file("checkpoint.safetensors")
        checkpoint.tidy(file)
        _warn_of_other_versions(checkpoint.header(file)["versions"], next_round)
    folder.lines.write(folder.lines.read()[:next_round])
    folder.evidence.cut(next_round)
    return state, next_round


def restorable(
    folder: RunFolder, run: Rounds, template: State, made: Origin
) -> tuple[State | None, int]:
    """Read the state in the last checkpoint and the number of the next round; write nothing.

    Without a checkpoint it is (None, 0), and the run starts over. Raises `UsageError` if the
    checkpoint is damaged or of another experiment or federation, and if records before it are lost.
    """
    file = folder.file("checkpoint.safetensors")
    state: State | None = None
    next_round = 0
    if file.is_file():
        check_origin(file, checkpoint.header(file)["made"], made)
        state, next_round = checkpoint.load(file, template)
        check_sizes(file, state, template, run.members(next_round).before)
    there = len(folder.lines.read())
    if there < next_round:
        said = f"{there} whole records, but the checkpoint comes after {next_round}; {AGAIN}"
        raise UsageError(f"{folder.file('records.jsonl')}: damaged: {said}")
    return state, next_round


def _warn_of_other_versions(there: Mapping[str, str], next_round: int) -> None:
    """Log if the rounds so far were done with other versions; not if that is not known."""
    unlike = differing(there, ("umbel", "torch")) if there else ""
    if unlike:
        log.warning(
            "the %s so far were done with %s: the rest may differ from a run with one version",
            *(counted(next_round, "round"), unlike),
        )
