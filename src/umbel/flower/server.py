"""The `ServerApp`: any experiment, driven over Flower by a plain loop."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from umbel import tables
from umbel.checks import UsageError, check
from umbel.config import read
from umbel.execution import advance
from umbel.experiment import Experiment
from umbel.flower.client import model_name
from umbel.flower.engine import FlowerEngine
from umbel.flower.meeting import Meeting
from umbel.flower.roll import Roll
from umbel.folder import RunFolder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """How the server deals with nodes: the run configuration of the app."""

    clients: int = 0  # begin when so many are there; 0: with those who are after `patience`
    patience: float = 120.0  # seconds to wait for clients before the first round
    time_limit: float = 600.0  # seconds that a node has for a request
    runs_dir: str = "runs"

    def __post_init__(self) -> None:
        check(self.clients >= 0, "clients", self.clients, "0 or more")
        check(self.patience > 0, "patience", self.patience, "more than 0")
        check(self.time_limit > 0, "time-limit", self.time_limit, "more than 0")

    @classmethod
    def of(cls, config: Mapping[str, object]) -> Settings:
        """From a run configuration, where `time_limit` is called `time-limit`."""
        return cls(
            int(str(config.get("clients", cls.clients))),
            float(str(config.get("patience", cls.patience))),
            float(str(config.get("time-limit", cls.time_limit))),
            str(config.get("runs-dir", cls.runs_dir)),
        )


def server_app(experiment: Path | str) -> ServerApp:
    """An app that drives the experiment of this TOML file, and goes on with it if it was begun."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        logging.basicConfig(
            level=logging.INFO, format="%(message)s"
        )  # `flwr run --stream` shows it
        serve(grid, read(Path(experiment)), Settings.of(context.run_config))

    return app


def serve(grid: Grid, experiment: Experiment, settings: Settings) -> RunFolder:
    """Drive the rounds that are left; the folder of the run holds all that they came to.

    Raises `UsageError` where too few clients come or the folder holds something else, and
    `QuorumError` where too few of them answer: started again, it goes on from the checkpoint.
    """
    path = Path(settings.runs_dir) / f"{experiment.name}-seed{experiment.seed}"
    folder = RunFolder(path)
    if not folder.begun:
        folder = RunFolder.create(path, experiment)
    elif folder.experiment != experiment:
        raise UsageError(f"{path}: holds another experiment; choose another runs-dir")
    engine, roll = _gather(grid, folder, settings)
    run = experiment.run(roll.federation(), engine)
    expected = f"that of the nodes: {roll.form.model}"
    check(roll.form.model == model_name(run.net), "model", experiment.model, expected)
    count = len(set(engine.nodes.values()))
    log.info(
        "%s: %d clients, of whom %d are at %d nodes now",
        path.resolve(),
        len(roll.names),
        len(engine.nodes),
        count,
    )
    for record in advance(folder, run):
        log.info(tables.one_line(record, experiment.rounds))
    return folder


def _show_in_the_log_of_the_run() -> None:
    """What umbel says goes where `flwr run --stream` finds it: this process is Flower's own."""
    logger = logging.getLogger("umbel")
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.StreamHandler())


def _gather(grid: Grid, folder: RunFolder, settings: Settings) -> tuple[FlowerEngine, Roll]:
    """The clients: of a run that was begun, those it was begun with."""
    file = folder.file("clients.json")
    known = Roll.read(file) if folder.begun and file.is_file() else None
    meeting = Meeting(grid, settings.time_limit, None if known is None else known.form)
    wanted = settings.clients if known is None else len(known.names)
    nodes = meeting.gather(wanted, settings.patience)
    needed = (settings.clients or 1) if known is None else 1
    after = f"at least {needed} after {settings.patience:g} s, as needed to begin"
    check(len(nodes) >= needed, "clients", len(nodes), after)
    roll = known or Roll.call(list(meeting.sites.values()))
    if known is None:
        folder.write("clients.json", roll.text)
    return FlowerEngine(meeting, roll.names, nodes, settings.time_limit), roll
