"""Checks of rounds in which clients fail, are few, or are never asked."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import torch

from umbel.algorithms.base import Algorithm, Served
from umbel.algorithms.restarts import method_of
from umbel.checks import UsageError
from umbel.engines.replies.faults import Faults
from umbel.engines.replies.validation import Limits
from umbel.testing.engines import Listening, Losing
from umbel.testing.federations import SIZES, blobs
from umbel.testing.runs import ROUNDS, last_state, run_of
from umbel.testing.sentences import saying, told


@told
def faults_are_survived_and_named(algorithm: Algorithm[Any]) -> None:
    """Replies that are lost, late or unusable do not spoil any model."""
    faults = Faults(drop=0.1, late=0.05, not_finite=0.1, wrong_shape=0.05, huge=0.1)
    absent = 0
    run = run_of(algorithm, faults=faults, limits=Limits(quorum=0.0))
    with saying("where clients fail"):
        for number, (state, record) in enumerate(run.rounds(ROUNDS)):
            largest = float(state.models.abs().max())
            assert largest < 100, f"models reach {largest:.3g} after round {number}"
            absent += len(record.missing) + len(record.refused)
    assert absent > 3, f"records name {absent} clients that failed, but many more did"


@told
def requests_that_nobody_answers_are_survived(algorithm: Algorithm[Any]) -> None:
    """A method survives a request without any reply: each request of a round is tried in turn."""
    lossy: dict[str, Any] = {
        "faults": Faults(drop=0.3),
        "limits": Limits(quorum=0.0),
        "evaluate_every": ROUNDS,
    }
    run = run_of(algorithm, federation=blobs(SIZES[:6]), **lossy)
    for silent in count():
        engine, most = Listening(run.clients, silent), 0
        with saying(f"where nobody answers request {silent + 1} of a round"):
            for _ in replace(run, engine=engine).rounds(ROUNDS):
                most, engine.asked = max(most, engine.asked), 0
        if most <= silent:
            return


@told
def one_client_may_be_lost_in_any_request(algorithm: Algorithm[Any]) -> None:
    """A method survives that one client does not answer, in each request another."""
    for first in (0, 3):
        run = run_of(algorithm, limits=Limits(quorum=0.0))
        run = replace(run, engine=Losing(run.clients, first))
        with saying("where one client is lost in each request"):
            last_state(run)


@told
def clients_never_asked_are_served(algorithm: Algorithm[Any]) -> None:
    """After one round with a fifth of the clients, every client has a model."""
    run = run_of(algorithm, participation=0.2)
    state, record = next(run.rounds(1))
    engine = Listening(run.clients)
    scores = replace(run, engine=engine).scores(state, run.context(0, 1))
    unserved = np.flatnonzero(~np.isfinite(scores.accuracy)).tolist()
    assert not unserved, f"models served to clients {unserved} have no accuracy on their examples"
    mean = float(scores.accuracy.mean())
    same = record.accuracy is not None and abs(record.accuracy - mean) < 1e-9
    assert same, f"the record says accuracy {record.accuracy}, but clients are served {mean}"
    _assert_something(scores.served)
    mixed = scores.served.weights is not None
    traits = method_of(algorithm).traits
    assert mixed == traits.mixes, "traits.mixes must say whether serve gives weights"
    assert engine.updated == traits.adapts, "traits.adapts must say whether serve trains"


@told
def everyone_may_take_part_and_so_may_one(algorithm: Algorithm[Any]) -> None:
    """Any share of the clients can be asked, unless the method refuses a share below 1."""
    for participation in (1.0, 1e-9):
        run = run_of(algorithm, participation=participation)
        with saying(f"where {run.cohort_size} clients take part in each round"):
            last_state(run)


@told
def a_federation_of_one_client_is_fine_or_refused(algorithm: Algorithm[Any]) -> None:
    """Too few clients are refused before the first round, by a `UsageError`."""
    run = run_of(algorithm, federation=blobs([12], num_groups=1))
    try:
        rounds = run.rounds(ROUNDS)
    except UsageError:
        return
    with saying("in a federation of one client"):
        for _ in rounds:
            pass


def _assert_something(served: Served) -> None:
    """Raise `AssertionError` for models of zeros, which never-asked clients get by mistake."""
    used = served.models.table.index_select(0, served.models.index)
    nothing = torch.nonzero((used == 0).all(1))[:, 0].tolist()
    assert not nothing, f"clients {nothing}, who were never asked, are served models of zeros"
