"""Bounds on the numbers of examples that clients claim: those that their nodes gave at first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.data.federation import Federation
from umbel.engines.replies.validation import promises
from umbel.flow import Replies, Request

COUNTS = "num_examples"
"""The column of replies with each client's number of examples."""


Sizes = Mapping[str, NDArray[Any]]
"""Numbers of examples (M,) of each client, by split."""

NOT_KNOWN: Sizes = MappingProxyType({})
"""No numbers: claims are trusted."""


def sizes_by_split(federation: Federation) -> Sizes:
    """The number of examples (M,) of each client in each split."""
    validation = federation.validation
    apart = {} if validation is None else {"validation": validation.sizes}
    return {"train": federation.train.sizes, "test": federation.test.sizes, **apart}


def held(request: Request, replies: Replies, sizes: Sizes) -> tuple[Replies, dict[int, str]]:
    """Lower numbers of examples to the known ones, and say which clients claimed more.

    Sums over the examples are scaled, so that their means stay as they are.
    """
    if COUNTS not in replies.columns or request.work.split not in sizes:
        return replies, {}
    claimed = replies.columns[COUNTS]
    known = torch.from_numpy(sizes[request.work.split]).to(claimed.dtype)[replies.clients]
    high = claimed > known
    if not high.any():
        return replies, {}
    columns: dict[str, Tensor] = {**replies.columns, COUNTS: torch.minimum(claimed, known)}
    # sum <- sum known / claimed, so that sum / count is the mean that the client sent.
    share = torch.where(high, known.double() / claimed.clamp(min=1).double(), 1.0)
    for name, promise in promises(request).items():
        if promise.per == COUNTS:
            values = columns[name]
            scale = share.reshape(-1, *[1] * (values.dim() - 1)).to(values.dtype)
            columns[name] = values * scale
    rows = zip(*(each[high].tolist() for each in (replies.clients, claimed, known)), strict=True)
    reasons = {
        client: f"{COUNTS}: {more:,} counted as {most:,}, as its node said when the run began"
        for client, more, most in rows
    }
    return replace(replies, columns=columns), reasons
