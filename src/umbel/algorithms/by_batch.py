"""Models that are each trained on some steps' examples of each client."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from umbel.algorithms.base import State, federate
from umbel.checks import check
from umbel.client.work import LocalTraining
from umbel.flow import Flow
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context

S = TypeVar("S", bound=State)


def check_apart_by_batch(averaging: Averaging) -> None:
    """Raise `UsageError` for shared parameters, which would move once for each model."""
    expected = "() where models are trained one after another, each on its own examples"
    check(not averaging.shared, "averaging.shared", averaging.shared, expected)


def federate_by_batch(
    state: S, owners: Tensor, ctx: Context, local: LocalTraining, averaging: Averaging
) -> Flow[S]:
    """Run one round of FedAvg of each model on the examples that are its own.

    `owners` (M, T) are the models to which each client's examples of each step belong, -1 for none.
    A client trains all models that have examples of it, one after another.
    """
    labels = state.labels
    for model in range(len(state.models)):
        own = owners == model
        asked = ctx.cohort[own[ctx.cohort].any(1)]
        if len(asked):
            alone = replace(state, labels=torch.full_like(labels, model))
            there = ctx.asking(asked).during(own)
            state = yield from federate(alone, there, local, averaging)
    return replace(state, labels=labels)
