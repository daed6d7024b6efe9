"""Find where a run goes on: its last checkpoint, and the records before it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from umbel.algorithms.base import State
from umbel.checks import UsageError
from umbel.files.seals import AGAIN
from umbel.folder import checkpoint
from umbel.folder.origin import Origin, check_origin, check_sizes
from umbel.folder.run_folder import RunFolder
from umbel.folder.tensor_files import remove_half_written
from umbel.summary import counted
from umbel.version import differing

log = logging.getLogger(__name__)


def restore(folder: RunFolder, template: State, made: Origin) -> tuple[State | None, int]:
    """As `restorable`, and remove later records. Raises `UsageError` as `restorable` does."""
    state, next_round = restorable(folder, template, made)
    remove_half_written(folder.path)
    if state is not None:
        file = folder.file("checkpoint.safetensors")
        checkpoint.tidy(file)
        _warn_of_other_versions(checkpoint.written_with(file), next_round)
    folder.lines.write(folder.records()[:next_round])
    folder.evidence.cut(next_round)
    return state, next_round


def restorable(folder: RunFolder, template: State, made: Origin) -> tuple[State | None, int]:
    """The state in the last checkpoint and the number of the next round; nothing is written.

    Without a checkpoint it is (None, 0), and the run starts over. Raises `UsageError` if the
    checkpoint is damaged or of another experiment or federation, and if records before it are lost.
    """
    file = folder.file("checkpoint.safetensors")
    state: State | None = None
    next_round = 0
    if file.is_file():
        check_origin(file, checkpoint.made(file), made)
        state, next_round = checkpoint.load(file, template)
        check_sizes(file, state, template, made)
    there = len(folder.records())
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
