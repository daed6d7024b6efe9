"""Runs made in Python in their folders: begin them, resume them, and change their end."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from umbel.algorithms.base import State
from umbel.checks import check
from umbel.experiment.places import sources_of
from umbel.experiment.python_run import (
    check_same_run,
    described,
    what_only_python_has,
    why_not_opened,
)
from umbel.files.atomic import writing_to
from umbel.files.reading import check_file
from umbel.folder.execution import advance_states, opened, restorable
from umbel.folder.how_to_continue import way_on
from umbel.folder.identity import origin
from umbel.folder.run_folder import RunFolder
from umbel.run.records import Record
from umbel.run.rounds import Rounds
from umbel.run.start import UNTIL_STOPPED, NumRounds, total, unsaid
from umbel.run.stopping import USED_UP, Budget, Until
from umbel.summary import counted

log = logging.getLogger(__name__)


def rounds_in(
    run: Rounds, path: Path | str, rounds: NumRounds, budget: Budget, checkpoint_every: int | None
) -> Iterator[tuple[State, Record]]:
    """Return the remaining rounds. Errors are raised at once, not by the first `next`."""
    where = Path(path)
    name = where.resolve().name.removesuffix(f"-seed{run.seed}")
    experiment = described(run, name, rounds, 1 if checkpoint_every is None else checkpoint_every)
    budget.check_for(run)
    folder = RunFolder(where)
    if folder.begun:
        check_same_run(folder.path, folder.experiment, run)
        there, done = folder.experiment.rounds, len(folder.records())
        if total(rounds) > done:
            how = f'umbel.resume("{path}", run, rounds={rounds!r}) changes the number'
        else:
            how = f"{counted(done, 'round')} done; for fewer, choose another folder"
        check(there == rounds, "rounds", rounds, f"{there}, as planned in {path}; {how}")
        _check_same_budget(folder, budget)
        if checkpoint_every is not None:
            _set_checkpoints(folder, checkpoint_every)
    else:
        with writing_to(where, "folder"):
            folder = RunFolder.create(where, experiment, budget)
        for said in (why_not_opened(run), what_only_python_has(experiment)):
            if said:
                log.warning("%s: %s", path, said)
    return advance_states(folder, run)


def _set_checkpoints(folder: RunFolder, every: int) -> None:
    """Set the number of rounds between checkpoints for the remaining rounds."""
    if folder.experiment.checkpoint_every != every and not folder.finished:
        with folder.locked():
            folder.settings.write(replace(folder.experiment, checkpoint_every=every))


def _check_same_budget(folder: RunFolder, budget: Budget) -> None:
    """Raise `UsageError` if a run that was begun is given another goal or time limit."""
    stopped, kept = folder.stop, folder.budget
    if stopped is None and folder.finished:
        return  # no round is left that could be too many
    for name, new, old in (
        ("until", budget.goals, kept.goals),
        ("max_time", budget.time, kept.time),
    ):
        value = json.dumps(new.split(", ") if ", " in new else new)  # several goals are a list
        how = f'umbel.resume("{folder.path}", run, {name}={value}) changes it'
        expected = f"{old or 'none'}, as planned in {folder.path}; {how}"
        check(new in ("", old), name, new, expected)
    if stopped is not None and budget == Budget() != kept:
        ended = f"stopped after {counted(stopped.rounds, 'round')}: {stopped.why}"
        goes_on = f'umbel.resume("{folder.path}", run, rounds={folder.experiment.rounds!r}) goes on'
        log.warning("%s: %s; %s", folder.path, ended, goes_on)


def reopened(
    folder: RunFolder,
    run: Rounds | None,
    data_dir: Path | str | None,
    workers: int | Literal["auto"] | None = None,
    verb: str = "resume",
) -> Rounds:
    """Return this run if it is the folder's, or else open the folder's experiment.

    `workers` replaces the experiment's `engine.workers`. Raises `UsageError` if the run's data were
    made in Python, with the call that does `verb` there.
    """
    if run is not None:
        check_same_run(folder.path, folder.experiment, run)
        return run
    return opened(folder, sources_of(folder.path, data_dir), workers, verb)[0]


def replan(
    folder: RunFolder,
    run: Rounds,
    rounds: int | str | None = None,
    until: Until = (),
    max_time: float | str | None = None,
) -> None:
    """Change the planned end of a run, if one is given; open it again if it is finished.

    Keep the old goals and time limit unless they ended the run. If no round is left, change
    nothing. Raises `UsageError` for `rounds` that are all done.
    """
    given = Budget.of(until, max_time)
    if rounds is None and given == Budget():
        return
    given.check_for(run)
    with folder.locked():
        records = folder.records()
        done = len(records)
        planned = folder.experiment.rounds if rounds is None else _total(rounds, done)
        if folder.finished and planned == done and rounds is None:
            return  # no round is left that a budget could be about
        # Records may be ahead of the checkpoint, by rounds that a killed process had done.
        kept = num_done(folder, run, planned)  # a round without a checkpoint is repeated
        most = total(planned)
        if most <= kept and rounds is None:
            return  # as above, of a run that was killed before its results were written
        how = "" if folder.finished else f"; {way_on(folder.path, 'finish')} ends it there"
        check(most > kept, "rounds", rounds, f"more than the {kept} rounds that are done{how}")
        with unsaid():
            before = records[-2].num_models if done > 1 else len(run.start(planned).models)
        turn = bool(done) and records[-1].num_models != before
        folder.replan(planned, _over_kept(folder, given, records[:kept]), turn)


def _over_kept(folder: RunFolder, given: Budget, records: Sequence[Record]) -> Budget:
    """Combine the new budget with the old one; `records` are those of rounds that are kept."""
    kept = folder.budget
    # A goal that the last round has reached would stop the run again at once.
    last = records[-1:]
    ahead = tuple(goal for goal in kept.until if not any(map(Budget((goal,)).reached, last)))
    spent = folder.stop is not None and folder.stop.why.endswith(USED_UP)
    time = None if spent else kept.max_seconds
    return Budget(
        given.until or ahead,
        time if given.max_seconds is None else given.max_seconds,
    )


def num_done(folder: RunFolder, run: Rounds, rounds: NumRounds) -> int:
    """Return the number of rounds in the checkpoint.

    Raises `UsageError`, before anything is written, if the run can't be resumed.
    """
    folder.sessions.read()
    # Damage is reported before the files of a finished run are removed.
    if folder.finished:  # without a checkpoint it would start over
        check_file(folder.file("checkpoint.safetensors"))
    made = origin(folder.experiment, run.divided, run.net)
    with unsaid():
        start = run.start(rounds)
    done = restorable(folder, run, start, made)[1]
    if folder.experiment.engine.name != "ray":  # which would join a cluster
        _ = run.clients  # an engine that is not possible here, such as on a GPU
    return done


def _total(rounds: int | str, done: int) -> NumRounds:
    """Return the total number of rounds that "+20" or 80 means, given those done."""
    text = str(rounds).strip()
    if text == UNTIL_STOPPED:
        return UNTIL_STOPPED
    fine = text.removeprefix("+").isdecimal() and len(text) < 19
    check(fine, "rounds", rounds, f"a number such as 80 or +20, or {UNTIL_STOPPED}")
    return int(text) + (done if text.startswith("+") else 0)
