"""Memory of clients between rounds, in a file that survives a restart of the node.

The last two rows of each client are kept, as evaluation may come between two rounds of training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

from torch import Tensor

from umbel.checks import UsageError
from umbel.client.constants import bits
from umbel.files.atomic import alone, remove_left_of
from umbel.folder.tensor_files import reading, tensors_in, write

KEPT = 2


def row_digest(row: Tensor) -> str:
    """Return a digest of a row's type, shape and values."""
    kind = f"{row.dtype} {tuple(row.shape)} ".encode()
    return hashlib.sha256(kind + bits(row).numpy().tobytes()).hexdigest()


def recall(file: Path, clients: Collection[str]) -> dict[str, dict[str, Tensor]]:
    """Return the rows of each client by their digests; none if the file is missing or damaged."""
    kept: dict[str, dict[str, Tensor]] = {client: {} for client in clients}
    for name, row in _all(file).items():
        client = name.split("/", 1)[1]
        if client in kept:
            kept[client][row_digest(row)] = row
    return kept


def memorise(file: Path, rows: Mapping[str, Tensor]) -> None:
    """Add a row for each of these clients, and drop its oldest one."""
    with alone(file.with_suffix(".lock")):
        before = _all(file)
        kept = {name: row for name, row in before.items() if name.split("/", 1)[1] not in rows}
        for client, row in rows.items():
            kept[f"0/{client}"] = row.detach().cpu().contiguous().clone()
            # 0/client becomes 1/client: an evaluation may come between two rounds of training.
            for age in range(1, KEPT):
                if f"{age - 1}/{client}" in before:
                    kept[f"{age}/{client}"] = before[f"{age - 1}/{client}"]
        remove_left_of(file)
        write(file, kept, {}, own=True)  # clients' own models


def _all(file: Path) -> dict[str, Tensor]:
    """Return all rows by names such as 0/client, where 0 is the latest."""
    try:
        with reading(file, "damaged") as (opened, _):
            return {name: row for name, row in tensors_in(opened).items() if "/" in name}
    except UsageError:
        return {}
