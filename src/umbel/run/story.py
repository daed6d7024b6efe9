"""A line about each round for the log, at level INFO."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from umbel.algorithms.base import State
from umbel.run.records import Record
from umbel.summary import counted


def told(record: Record, before: State, after: State, asked: int) -> str:
    """Return a line with the cohort, its replies, and the changes of models and clusters.

    `before` and `after` are the states around the round, and `asked` is the size of the cohort.
    """
    replies = asked - len(record.missing) - len(record.refused)
    parts = [f"{replies:,} {'reply' if replies == 1 else 'replies'}"]
    unusual = {"silent": record.missing, "refused": record.refused, "bounded": record.bounded}
    unusual |= {"joined": record.joined or (), "left": record.left or ()}
    parts += [f"{len(clients)} {what}" for what, clients in unusual.items() if clients]
    who = f"asked {asked} of {counted(len(after.labels), 'client')}"
    return "; ".join([f"round {record.round}: {who}", ", ".join(parts), *_models(before, after)])


def _models(before: State, after: State) -> Iterator[str]:
    """Yield the change of the number of models, and the number of clients that changed clusters."""
    old, new = len(before.models), len(after.models)
    if old != new:
        yield f"{counted(old, 'model')} {'became' if new > old else 'merged to'} {new}"
    else:
        yield counted(new, "model")
        if count := len(moved(before, after)):
            yield f"{counted(count, 'client')} moved to another cluster"


def moved(before: State, after: State, kept: Tensor | None = None) -> Tensor:
    """Return the positions (N,) after of clients in another cluster; none if models came or went.

    Labels can be compared only between equal numbers of models. `kept` are the positions before of
    the clients that stayed, by default of all.
    """
    if not 1 < len(after.models) == len(before.models):
        return torch.empty(0, dtype=torch.long)
    labels = before.labels if kept is None else before.labels[kept]
    return torch.nonzero(labels != after.labels[: len(labels)])[:, 0]
