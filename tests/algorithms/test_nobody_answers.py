"""With a quorum of 0, a round that nobody answers changes nothing, and is recorded as such."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import nan
from typing import Any

import pytest

from tests.federations import blobs, mlp
from umbel.algorithms import FLACC, IFCA, Joint, Sattler
from umbel.algorithms.base import Algorithm
from umbel.client.work import LocalTraining
from umbel.engines.replies.validation import Limits, assemble
from umbel.flow import Engine, Replies, Request
from umbel.result.run import Run
from umbel.testing import assert_same_state

LOCAL = LocalTraining(epochs=1, batch_size=8)


@dataclass
class Silent:
    """An engine whose clients have stopped answering once it is told so."""

    engine: Engine
    silent: Callable[[], bool]

    def send(self, request: Request) -> Replies:
        return assemble(request, ()) if self.silent() else self.engine.send(request)


@pytest.mark.parametrize(
    ("method", "measures"),
    [
        # It merged last in round 1, and counts the rounds since then that anybody answered.
        (
            FLACC(LOCAL, n_merge=1, n_sep=1_000),
            {"merges": 0, "best_cross": nan, "last_merge": 2},
        ),
        (
            Sattler(LOCAL, eps_1=1e3, eps_2=0.0, from_round=1),
            {"splits": 0, "max_norm": nan, "mean_norm": nan},
        ),
        (Joint(2, local=LOCAL), {}),
        (IFCA(local=LOCAL), {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_round_that_nobody_answers_changes_nothing(
    method: Algorithm[Any], measures: dict[str, Any]
) -> None:
    run = Run(method, blobs(), mlp(), limits=Limits(quorum=0.0), evaluate_every=1_000)
    gone = False
    run = replace(run, engine=Silent(run.clients, lambda: gone))
    before = None
    for number, (state, _) in enumerate(run.rounds(5)):
        if before is not None:
            assert_same_state(state, replace(before, **measures), 0.0)
            return
        if number == 1:
            before, gone = state, True
    raise AssertionError("no round was silent")
