"""Export of a run's records to TensorBoard or MLflow."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path

from umbel.checks import UsageError, first_line
from umbel.experiment.layers import flat
from umbel.experiment.toml_file import plain
from umbel.files.atomic import naming
from umbel.files.reading import check_no_link
from umbel.folder.run_folder import RunFolder
from umbel.run.records import Record, measures_of

AT_ONCE = 500
"""Number of values sent to MLflow in one message."""


def to_tensorboard(folder: RunFolder, out: Path | None) -> Path:
    """Write the event file of a run, and replace an earlier event file of the same run.

    Into a folder in `out` that is called as the run's, or, if it is None, into `tensorboard` in the
    run's own. Raises `UsageError` without the library, and where the folder in `out` has event
    files of another run.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError('--to: needs an extra: pip install "umbel[tensorboard]"') from None
    path = folder.path.resolve()
    where = folder.file("tensorboard") if out is None else out / path.name
    if out is None:
        check_no_link(where)
    records, earlier = folder.records(), list(where.glob("events.out.tfevents.*"))
    ending = f".{sha256(os.fsencode(path)).hexdigest()[:16]}"  # tells whose an event file is
    if out is not None and not all(old.name.endswith(ending) for old in earlier):
        raise UsageError(
            f"--out: {where} has event files of another run, or of this one before it was moved: "
            "choose another --out, or remove them"
        )
    for old in earlier:
        old.unlink()
    with (
        naming(where),
        raising_of_threads(),
        SummaryWriter(str(where), filename_suffix=ending) as writer,
    ):
        text = folder.toml
        indented = "".join(f"    {line}\n" for line in text.splitlines())
        writer.add_text("experiment", indented)
        for record in records:
            for measure, value in measures_of(record):
                writer.add_scalar(measure, value, record.round + 1)
    return where


@contextmanager
def raising_of_threads() -> Iterator[None]:
    """Raise errors of threads that end in the block, such as TensorBoard's writer."""
    ended: list[BaseException | None] = []
    before = threading.excepthook
    threading.excepthook = lambda about: ended.append(about.exc_value)
    try:
        yield
    finally:
        threading.excepthook = before
    for error in filter(None, ended):
        raise error


def to_mlflow(folder: RunFolder, out: str | None) -> str:
    """Log a run under its experiment's name, at this URI, or MLflow's own if None; return its id.

    Each export is a run of its own. Raises `UsageError` without the library, or where it refuses.
    """
    # Exported data are private.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise UsageError('--to: needs an extra: pip install "umbel[mlflow]"') from None
    experiment, records = folder.experiment, folder.records()
    began = _milliseconds(folder)
    settings = [Param(name, str(value)) for name, value in flat(plain(experiment))]
    metrics = (
        Metric(measure, value, began + round(1000 * seconds), record.round + 1)
        for record, seconds in _clocked(records)
        for measure, value in measures_of(record)
    )
    try:
        client = MlflowClient(tracking_uri=out)
        known = client.get_experiment_by_name(experiment.name)
        place = client.create_experiment(experiment.name) if known is None else known.experiment_id
        name = folder.path.resolve().name
        run: str = client.create_run(place, start_time=began, run_name=name).info.run_id
        for first in range(0, len(settings), 100):
            client.log_batch(run, params=settings[first : first + 100])
        while several := list(islice(metrics, AT_ONCE)):
            client.log_batch(run, metrics=several)
        client.set_terminated(run, "FINISHED" if folder.finished else "RUNNING")
    except MlflowException as error:
        raise UsageError(f"--to mlflow: {first_line(error)}") from None
    return run


def _clocked(records: list[Record]) -> Iterator[tuple[Record, float]]:
    """Each record, with the total seconds up to its round."""
    seconds = 0.0
    for record in records:
        seconds += record.seconds
        yield record, seconds


def _milliseconds(folder: RunFolder) -> int:
    """The time when the run was started."""
    sessions = folder.sessions.read()
    if not sessions:
        return round(1000 * folder.file("experiment.toml").stat().st_mtime)
    return round(1000 * datetime.fromisoformat(sessions[0]["began"]).timestamp())
