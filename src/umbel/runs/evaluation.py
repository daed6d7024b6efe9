"""What is measured after a round: how clients are served, on which of their examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from umbel.algorithms.base import Algorithm, State
from umbel.checks import check
from umbel.flow import Flow, as_flow
from umbel.runs.forms import as_served
from umbel.runs.personal import Personal
from umbel.runs.scores import ClientScores, Judged, score
from umbel.runs.tuning import personalised
from umbel.server.ask import Context

Evaluated: TypeAlias = "Mapping[Judged, ClientScores]"
"""The scores by the examples that they are about."""


def evaluated(
    algorithm: Algorithm[Any],
    state: State,
    ctx: Context,
    on: Sequence[Judged],
    metrics: tuple[str, ...],
    personal: Personal | None,
) -> Flow[Evaluated]:
    """Evaluate what clients are served; for the test, they may tune it before.

    Raises `UsageError` where clients use mixtures, which can't be tuned.
    """
    found: dict[Judged, ClientScores] = {}
    for split in on:
        found[split] = yield from score(algorithm, state, ctx, split, metrics)
        one = personal is None or found[split].served.weights is None
        expected = "for a method that serves each client one model: its clients use mixtures"
        check(one, "personal", type(algorithm).__name__, expected)
    if personal is not None and "test" in found:
        test, validation = found["test"], found["validation"]
        found["test"] = yield from personalised(personal, test, validation, ctx, metrics)
    return found


def clusters_of(
    found: Evaluated, algorithm: Algorithm[Any], state: State, ctx: Context
) -> NDArray[np.int64] | None:
    """The cluster (M,) by which each client is served, as an evaluation found it, if there was one.

    Without an evaluation they are the same, or None where serving asks clients something.
    """
    if found:
        return [*found.values()][-1].clusters  # the test, if it is among them
    flow = as_flow(algorithm.serve(state, ctx.everyone), "serve")
    try:
        next(flow)
    except StopIteration as stop:
        return as_served(stop.value, state, ctx.everyone).labels.numpy()
    flow.close()
    return None
