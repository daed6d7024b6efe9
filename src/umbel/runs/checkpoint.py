"""A state in one file: tensors as safetensors, numbers in its header, no pickle.

One file, because a rename replaces exactly one: a run killed between two would have neither.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from umbel.algorithms.base import S
from umbel.checks import UsageError

FORMAT = 2


def save(file: Path, state: S, next_round: int) -> None:
    """Replace the file by this state, so that it is whole whenever the process is killed."""
    values = {f.name: getattr(state, f.name) for f in fields(state)}
    tensors = {n: v.detach().cpu().contiguous() for n, v in values.items() if isinstance(v, Tensor)}
    header = {
        "format": FORMAT,
        "kind": type(state).__name__,
        "next_round": next_round,
        "numbers": {name: v for name, v in values.items() if not isinstance(v, Tensor)},
        "checksum": _checksum(tensors),
    }
    beside = file.with_suffix(".partial")
    save_file(tensors, beside, {"umbel": json.dumps(header)})
    replace_durably(beside, file)


def load(file: Path, template: S) -> tuple[S, int]:
    """The state and the number of the round to come; `template` is a state of the same kind.

    Raises `UsageError` if the file is not a whole checkpoint of such a state.
    """
    try:
        with safe_open(file, framework="pt") as opened:
            header = json.loads((opened.metadata() or {}).get("umbel", "{}"))
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise UsageError(f"{file}: not a readable checkpoint: {error}") from None
    if header.get("format") != FORMAT or header.get("kind") != type(template).__name__:
        found = f"format {header.get('format')} of {header.get('kind')}"
        wanted = f"format {FORMAT} of {type(template).__name__}"
        raise UsageError(f"{file}: a checkpoint in {found}, and {wanted} is needed")
    if header["checksum"] != _checksum(tensors):
        raise UsageError(f"{file}: damaged: its checksum does not match")
    return replace(template, **tensors, **header["numbers"]), int(header["next_round"])


def labels(file: Path) -> Tensor:
    """(M,) the cluster of each client, whatever the method. Raises `UsageError` as `load` does."""
    try:
        with safe_open(file, framework="pt") as opened:
            found: Tensor = opened.get_tensor("labels")
            return found
    except (OSError, SafetensorError, ValueError) as error:
        raise UsageError(f"{file}: not a readable checkpoint: {error}") from None


def next_round(file: Path) -> int:
    """The number of the round to come; 0 without a checkpoint. Raises `UsageError` as `load`."""
    if not file.is_file():
        return 0
    try:
        with safe_open(file, framework="pt") as opened:
            return int(json.loads((opened.metadata() or {})["umbel"])["next_round"])
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise UsageError(f"{file}: not a readable checkpoint: {error}") from None


def replace_durably(beside: Path, file: Path) -> None:
    """Rename a finished file over another, on disk before anybody sees it."""
    with beside.open("rb") as written:
        os.fsync(written.fileno())
    beside.replace(file)


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    total = 0
    for name, tensor in sorted(tensors.items()):
        total = zlib.crc32(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode(), total)
        if tensor.numel():
            total = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, total)
    return total
