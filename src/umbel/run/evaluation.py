"""The evaluation after a round, and the works that clients do for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from umbel.algorithms.base import Algorithm, State
from umbel.algorithms.restarts import innermost
from umbel.checks import check
from umbel.client.work import Evaluation, MixtureEvaluation, PersonalEvaluation, Routed, Work
from umbel.client.work.routed import MOST_EXPERTS
from umbel.flow import Flow, as_flow
from umbel.run.fine_tuning import personalised
from umbel.run.personal import Personal
from umbel.run.returned_values import as_served
from umbel.run.scores import ClientScores, Judged, score
from umbel.server.ask import Context

Evaluated: TypeAlias = "Mapping[Judged, ClientScores]"
"""Scores by split."""


def evaluated(
    algorithm: Algorithm[Any],
    state: State,
    ctx: Context,
    on: Sequence[Judged],
    metrics: tuple[str, ...],
    personal: Personal | None,
    max_value: float,
) -> Flow[Evaluated]:
    """Evaluate the models that clients are served; before the test, clients may fine-tune them.

    Tuned models have no weight of a larger magnitude than `max_value`.

    Raises `UsageError` where clients use mixtures, which can't be tuned.
    """
    found: dict[Judged, ClientScores] = {}
    for split in on:
        found[split] = yield from score(algorithm, state, ctx, split, metrics)
        one = personal is None or found[split].served.weights is None
        expected = "a method that serves each client one model: its clients use mixtures"
        check(one, "personal", type(algorithm).__name__, expected)
    if personal is not None and "test" in found:
        test, validation = found["test"], found["validation"]
        tuned = personalised(personal, test, validation, ctx, metrics, max_value)
        found["test"] = yield from tuned
    return found


def works_of(
    algorithm: Algorithm[Any],
    metrics: tuple[str, ...],
    personal: Personal | None,
    max_value: float,
) -> list[Work]:
    """List every work that a run asks clients to do: its method's, and those of `evaluated`.

    Over Flower, nodes do no other work.
    """
    kind = MixtureEvaluation if innermost(algorithm).traits.mixes else Evaluation
    works: list[Work] = [kind("validation", metrics), kind("test", metrics)]
    if personal is not None:
        works += [*personal.works(max_value), PersonalEvaluation()]
        works.append(PersonalEvaluation("test", metrics))
    if innermost(algorithm).traits.mixes_experts:
        works += [Routed(work, MOST_EXPERTS) for work in works]
    return [*algorithm.sends, *works]


def clusters_of(
    found: Evaluated, algorithm: Algorithm[Any], state: State, ctx: Context
) -> NDArray[np.int64] | None:
    """Return the cluster (M,) by which each client is served, from an evaluation if there was one.

    Without an evaluation it follows from the state, or is None if serving asks clients.
    """
    if found:
        return [*found.values()][-1].clusters  # the test, if it is among them
    flow = as_flow(algorithm.serve(state, ctx.everyone), "serve")
    # A flow that ends without a request has asked no client: its result is free.
    try:
        next(flow)
    except StopIteration as stop:
        return as_served(stop.value, state, ctx.everyone).labels.numpy()
    flow.close()
    return None
