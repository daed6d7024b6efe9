"""Find where a run goes on: its last checkpoint, and the records before it."""

from __future__ import annotations

from umbel.algorithms.base import State
from umbel.checks import UsageError
from umbel.runs import checkpoint
from umbel.runs.folder import RunFolder
from umbel.runs.origins import Origin, check_origin, check_sizes
from umbel.runs.seals import AGAIN
from umbel.runs.tensor_files import remove_half_written


def restore(folder: RunFolder, template: State, made: Origin) -> tuple[State | None, int]:
    """As `restorable`, and remove later records. Raises `UsageError` as `restorable` does."""
    state, next_round = restorable(folder, template, made)
    remove_half_written(folder.path)
    if state is not None:
        checkpoint.tidy(folder.file("checkpoint.safetensors"))
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
