"""Check that a method asks clients only for works that it declares."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from umbel.algorithms.base import Algorithm
from umbel.checks import UsageError
from umbel.client.work import Work
from umbel.client.work.base import undeclared
from umbel.engines.replies.faults import Faults
from umbel.engines.replies.validation import Limits
from umbel.flow import Engine, Replies, Request, as_flow, drive
from umbel.run.evaluation import works_of
from umbel.testing.federations import SIZES, blobs
from umbel.testing.runs import ROUNDS, last_state, run_of
from umbel.testing.sentences import told


class _Noting:
    """An engine that notes which works clients are asked for."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.works: list[Work] = []

    def send(self, request: Request) -> Replies:
        self.works.append(request.work)
        return self.engine.send(request)


@told
def it_asks_only_for_works_that_it_declares(algorithm: Algorithm[Any]) -> None:
    """Rounds, `serve` and `assign` ask for works in `sends`: over Flower, nodes do no others."""
    run = run_of(algorithm, faults=Faults(drop=0.2), limits=Limits(quorum=0.0))
    engine = _Noting(run.clients)
    state = last_state(replace(run, engine=engine))
    newcomers = run_of(algorithm, federation=blobs((*SIZES, *SIZES[:4]), seed=1))
    everyone, engine.engine = newcomers.context(ROUNDS - 1, ROUNDS).everyone, newcomers.clients
    with suppress(UsageError):  # a method may refuse newcomers
        drive(as_flow(algorithm.assign(state, everyone), "assign"), engine)
    declared = works_of(algorithm, (), None, run.limits.max_value)
    for work in engine.works:
        why = undeclared(work, declared)
        how = "let `sends` return it, too: over Flower, nodes do no other work"
        assert why is None, f"clients are asked for {work}, which is {why}; {how}"
