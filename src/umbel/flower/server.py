"""The `ServerApp`: any experiment, driven over Flower by a plain loop."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import flwr
import httpx
import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from umbel.algorithms.restarts import innermost
from umbel.checks import QuorumError, UsageError, check, check_least, command, first_line
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.places import without_paths
from umbel.experiment.toml_file import read
from umbel.export.openmetrics import address_of, exposed
from umbel.files.atomic import writing_to
from umbel.files.seals import json_text
from umbel.flower.client_owners import Owners
from umbel.flower.discovery import Meeting
from umbel.flower.engine import FlowerEngine
from umbel.flower.expected_form import Expectation
from umbel.flower.limits import settings_in
from umbel.flower.open_roll import OpenRoll, there_at_last
from umbel.flower.registry import Roll
from umbel.flower.scaffold import sent_with
from umbel.folder import checkpoint
from umbel.folder.execution import Plan
from umbel.folder.how_to_continue import NODES, ROLL, names_on_the_roll
from umbel.folder.run_folder import RunFolder
from umbel.newcomers import descriptions
from umbel.report.terminal import results as terminal
from umbel.run.rounds import Rounds
from umbel.settings import Settings as CheckedSettings
from umbel.settings import whole_path
from umbel.summary import counted

log = logging.getLogger(__name__)

ENDED = (
    "ended by `flwr stop`, or because the SuperLink had no sign of life from this run for a "
    "minute, as on a busy machine, so that its token has expired; the same `flwr run` goes on from "
    "the checkpoint"
)
"""Reason of the end if Flower ends the process, or refuses requests with its token."""

TESTED = "1.41 and 1.42"
"""The releases of flwr that umbel's tests were run with, in order."""

KNOWN_ERRORS = (UsageError, QuorumError, OSError, MemoryError)
"""Errors whose message is for users, who need not see where they were raised."""


def said_last(work: Callable[[], object]) -> None:
    """Do the work, and log the reason for an end once more after all that Flower writes about it.

    Flower logs where an error was raised, and an exit code, below umbel's sentence, and nothing if
    it ends the process itself.
    """
    why: list[str] = [ENDED]
    _before_exit(lambda: log.error("umbel: %s", why[0]) if why else None)
    try:
        work()
    except Exception as error:
        why[:] = [_reason(error)]
        if not isinstance(error, KNOWN_ERRORS):
            raise
        raise error.with_traceback(None) from None
    why.clear()


def _reason(error: Exception) -> str:
    expired = isinstance(error, httpx.HTTPStatusError) and error.response.status_code in (401, 403)
    if expired:
        return ENDED
    kind = "" if isinstance(error, KNOWN_ERRORS) else f"{type(error).__name__}: "
    return kind + first_line(error)


def _before_exit(say: Callable[[], None]) -> None:
    """Have Flower call this before it ends the process, if this version has such a list."""
    try:
        from flwr.supercore.exit import add_exit_handler  # not a public name
    except ImportError:
        return
    add_exit_handler(say)


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings(CheckedSettings):
    """Settings of the server, from the run configuration of the app. Raises `UsageError`."""

    may_be_infinite: ClassVar = frozenset({"patience", "time_limit", "release_after"})

    clients: int = 0  # number to wait for; 0: begin with those that are connected after `patience`
    patience: float = 120.0  # seconds to wait for clients before the first round
    time_limit: float = 600.0  # seconds that a node has for a request
    runs_dir: str = "runs"
    # seconds after which clients of a disconnected node are free for others
    release_after: float = 60.0
    input_shape: str = ""  # shape of an example, such as "1 28 28"; empty: the shape of most nodes
    outputs: int = 0  # number of a model's outputs; 0: as most nodes need
    # whether to keep descriptions of clients' inputs, to assign newcomers without labels
    describe: bool = False
    metrics: str = ""  # where numbers for Prometheus are served, such as "9464"; empty: nowhere

    def __post_init__(self) -> None:
        check_least(self, 0, "clients")
        check(self.patience > 0, "patience", self.patience, "more than 0")
        check(self.time_limit > 0, "time-limit", self.time_limit, "more than 0")
        check(self.release_after >= 0, "release-after", self.release_after, "0 or more, or inf")
        check_least(self, 0, "outputs")
        sizes = self.input_shape.split()
        fine = all(size.isdecimal() and len(size) < 19 and int(size) > 0 for size in sizes)
        expected = 'whole numbers of 1 or more, as in "1 28 28"'
        check(fine, "input-shape", self.input_shape, expected)
        _ = self.address

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port at which numbers are served; None: nowhere."""
        return address_of(self.metrics, "metrics") if self.metrics else None

    @classmethod
    def of(cls, config: Mapping[str, object]) -> Settings:
        """Read settings from a run configuration, in which `time_limit` is `time-limit`.

        Raises `UsageError` for a setting of a wrong type or out of range.
        """
        return cls(**settings_in(config, cls))

    def expectation(self, experiment: ExperimentSettings, begun: bool = False) -> Expectation:
        """The form that sites are expected to have; `begun` says whether the run has begun."""
        shape = tuple(map(int, self.input_shape.split()))
        return Expectation(experiment, shape or None, self.outputs or None, begun)


def server_app(experiment: Path | str) -> ServerApp:
    """A Flower app that runs the experiment of this TOML file, or resumes it if it was begun."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        _show_in_the_log_of_the_run()
        said_last(lambda: serve(grid, read(Path(experiment)), Settings.of(context.run_config)))

    return app


def serve(grid: Grid, experiment: ExperimentSettings, settings: Settings) -> RunFolder:
    """Drive the remaining rounds, and return the folder that holds their results.

    Raises `UsageError` if too few clients connect or the folder holds another experiment, and
    `QuorumError` if too few clients answer. When it is called again, it resumes from the
    checkpoint.
    """
    _check_describes(settings, experiment)
    if is_newer(flwr.__version__):
        said = "flwr %s is newer than the releases that this umbel was tested with, %s"
        log.warning(said, flwr.__version__, TESTED)
    folder = _folder(experiment, settings)
    path = folder.path.resolve()
    if app := sent_with(path):
        log.warning(
            "%s: is in the folder of an app, which Flower sends to every node, including the "
            "names of all clients: write %s into %s, in UTF-8, or give another runs-dir",
            *(path, f"/{path.relative_to(app).parts[0]}/", app / ".gitignore"),
        )
    to_describe = settings.describe and not _all_described(folder)
    if folder.finished and not to_describe:
        log.warning(
            "%s: finished already, after %d rounds, so nothing is trained; `umbel show %s` shows "
            "it; for another run change name or seed in experiment.toml, or the setting runs-dir",
            *(path, len(folder.records()), path),
        )
        return folder
    known = Roll.read(folder.file(ROLL)) if folder.begun else None
    # Gathering may take minutes, and writes nothing.
    engine, roll = _gather(grid, folder, experiment, settings, known)
    # It is locked only now: whoever gathers first begins, and those that wait do not disturb it.
    with folder.locked():
        folder.checked()
        _keep(folder, engine.meeting.owners, roll, known)
        _proceed(folder, experiment, engine, roll, settings, to_describe)
    log.info("%s: finished; `%s` shows it", path, command("show", path))
    return folder


def is_newer(version: str) -> bool:
    """Return True if a release of flwr, such as "1.43.0", is newer than all of `TESTED`."""
    first, second = (int(number) for number in re.findall(r"\d+", version)[:2])
    newest = TESTED.split()[-1].split(".")
    return (first, second) > (int(newest[0]), int(newest[1]))


def _keep(folder: RunFolder, owners: Owners, roll: Roll, known: Roll | None) -> None:
    """Write the roll of the run's clients, unless it is known, and the nodes that own them.

    Raises `UsageError` if the run was begun meanwhile with a roll of its own.
    """
    if known is None:
        if folder.begun:
            how = "the same `flwr run` goes on with it, with the clients that it began with"
            raise UsageError(f"{folder.path}: was begun by another process meanwhile; {how}")
        _write_roll(folder, roll)
    owners.keep(folder.file(NODES))


def _proceed(
    folder: RunFolder,
    experiment: ExperimentSettings,
    engine: FlowerEngine,
    roll: Roll,
    settings: Settings,
    to_describe: bool,
) -> None:
    """Do the remaining rounds in a locked folder, and ask for descriptions if they are wanted."""
    objective = roll.form.objective(experiment.objective)
    if experiment.membership is not None:
        done = checkpoint.next_round(folder.file("checkpoint.safetensors"))
        keep = partial(_write_roll, folder)
        OpenRoll(engine, roll, objective, done, settings.patience, keep).open(experiment.membership)
    run = experiment.run(engine.federation or roll.federation(objective), engine)
    here, nodes = len(engine.nodes), len(set(engine.nodes.values()))
    clients, places = counted(len(roll.names), "client"), counted(nodes, "node")
    log.info("%s: %s, of whom %d are at %s now", folder.path.resolve(), clients, here, places)
    if drowned := experiment.privacy.drowned(run.net.layout.num_values, run.cohort_size):
        log.warning(drowned)
    # Refusals by a node are logged when they come; those of the checks, after the round.
    with exposed(settings.address, folder, run, Plan.of(folder, run), log.info) as rounds:
        for record in rounds:
            engine.tell(record.refused)
            log.info(terminal.one_line(record, experiment.planned_rounds))
    if to_describe:
        _describe(folder, run)


def _write_roll(folder: RunFolder, roll: Roll) -> None:
    folder.write(ROLL, json_text(roll.plain))


def _check_describes(settings: Settings, experiment: ExperimentSettings) -> None:
    """Refuse descriptions with privacy before training: nodes would refuse them after it."""
    closed = experiment.membership is None
    expected = "false with [membership]: descriptions are of a fixed list of clients"
    check(closed or not settings.describe, "describe", settings.describe, expected)
    private = experiment.privacy.clip is not None
    expected = "false with [privacy], which does not protect descriptions of inputs"
    check(not (settings.describe and private), "describe", settings.describe, expected)


def _all_described(folder: RunFolder) -> bool:
    """Return True if every client of the run is described; False if it has not begun."""
    kept = descriptions.load(folder.path)
    return kept is not None and len(kept.clients) >= len(names_on_the_roll(folder.path))


def _describe(folder: RunFolder, run: Rounds) -> None:
    """Ask clients to describe their inputs; the descriptions serve newcomers without labels."""
    kept, everyone = descriptions.load(folder.path), torch.arange(run.federation.num_clients)
    missing = everyone if kept is None else everyone[~torch.isin(everyone, kept.clients)]
    found = descriptions.described(run, run.net, run.seed, missing)
    if len(found.clients):
        kept = descriptions.with_earlier(found, kept)
        descriptions.save(folder.path, kept)
    described, every = 0 if kept is None else len(kept.clients), len(everyone)
    again = "" if described == every else "; the same `flwr run` asks again for those that lack"
    said = "%s: %d of %d clients have described their inputs%s"
    log.info(said, folder.path, described, every, again)


def _show_in_the_log_of_the_run() -> None:
    """Send umbel's log to where `flwr run --stream` reads: this process belongs to Flower.

    Logs of other libraries are not sent: Flower's HTTP client logs a line for each request. Of each
    round there is a line already.
    """
    logger = logging.getLogger("umbel")
    logger.setLevel(logging.INFO)
    for of_rounds in ("umbel.run", "umbel.folder"):
        logging.getLogger(of_rounds).setLevel(logging.WARNING)
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())


def _folder(experiment: ExperimentSettings, settings: Settings) -> RunFolder:
    """Return the folder of the run, which is created unless the run was begun.

    The rounds of a run that is not finished may be others than before. Raises `UsageError` if it
    holds another experiment, or a run in one process.
    """
    place = whole_path(settings.runs_dir)
    folder = RunFolder.of(place, experiment)
    if not folder.begun:
        with writing_to(place, "runs-dir"):
            return RunFolder.create(folder.path, experiment)
    if not folder.file(ROLL).is_file():
        go_on = command("show" if folder.finished else "resume", folder.path)
        how = f"`{go_on}`, or choose another name, seed or runs-dir"
        raise UsageError(f"{folder.path}: holds a run that was not begun over Flower; {how}")
    there = folder.runnable
    asked = there if folder.finished else replace(there, rounds=experiment.rounds)
    if without_paths(asked) != without_paths(experiment):
        expected = "choose another name, seed or runs-dir"
        raise UsageError(f"{folder.path}: holds another experiment; {expected}")
    if asked.rounds != there.rounds:
        with folder.locked():
            folder.settings.write(asked)
    return folder


def _gone(folder: RunFolder, owners: Owners, roll: Roll) -> set[str]:
    """Return the clients of nodes that were missing in the last round, perhaps for good."""
    records = folder.records()
    missing = [roll.names[client] for client in records[-1].missing] if records else []
    of = owners.clients
    nodes = {of[name] for name in missing if name in of}
    return {name for name in roll.names if of.get(name) in nodes} | set(missing)


def _gather(
    grid: Grid,
    folder: RunFolder,
    experiment: ExperimentSettings,
    settings: Settings,
    known: Roll | None,
) -> tuple[FlowerEngine, Roll]:
    """Gather clients: return the engine and the roll. A run that was begun keeps its roll."""
    expect = settings.expectation(experiment, begun=known is not None)
    # An attempt that never began leaves no owners: whoever was there may have come back anew.
    owners = Owners(release_after=settings.release_after)
    if known is not None:
        owners = Owners.read(folder.file(NODES), settings.release_after)
    meeting = Meeting(
        grid,
        max(settings.time_limit, settings.patience),  # with a greeting a node installs the app
        None if known is None else expect.compared(known.form),
        expect,
        owners,
        grouped=known is None and innermost(experiment.algorithm).traits.needs_groups,
        inputs="" if known is None else known.tables,
        open=experiment.membership is not None,
    )
    wanted = settings.clients if known is None else len(known.names)
    whom = f"{wanted} clients" if wanted else "clients"
    # A node that was missing in the last round may never come back: waiting for it is optional.
    gone = set() if known is None else _gone(folder, owners, known)
    if gone:
        whom += f", but not for the {len(gone)} at nodes that were missing in the last round"
    log.info("waiting for %s, %g s at most", whom, settings.patience)
    names = None if known is None else known.names
    enough = set(names or ()) - gone if gone else ()
    if known is not None and meeting.open:  # others may have come meanwhile
        wanted, names = 0, None
        enough = {known.names[client] for client in there_at_last(known)} - gone
    nodes = meeting.gather(wanted, settings.patience, names, enough)
    # A begun run goes on with any client: each round checks its own quorum.
    needed = (settings.clients or 1) if known is None else 1
    after = f"at least {needed} after {settings.patience:g} s, which the run needs to begin"
    if silent := meeting.silent():
        whom = f"{counted(len(silent), 'connected node')} gave no answer yet: {meeting.few(silent)}"
        after += f"; {whom}"
    check(len(nodes) >= needed, "clients", len(nodes), after)
    tuned = experiment.personal is not None
    roll = known or Roll.call(nodes, meeting.sites, meeting.named, meeting.inputs, tuned)
    if tuned and roll.validation is None:
        raise UsageError(
            "personal: no node has validation examples, by which clients choose their models: give "
            "clients some, or set validation_fraction in [personal] at the server and the nodes"
        )
    limit = settings.time_limit
    return FlowerEngine(meeting, roll.names, nodes, limit, facts=roll.facts), roll
