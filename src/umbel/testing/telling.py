"""Checks of the results of a method's `assign`, `fit`, `profile`, `evidence` and `measure`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Assigned
from umbel.checks import UsageError
from umbel.engines.replies.guarded import Guarded
from umbel.engines.replies.validation import Limits
from umbel.flow import Engine, as_flow, drive
from umbel.folder.evidence_folder import evidence_of
from umbel.run.metrics import as_measures
from umbel.run.returned_values import as_assigned
from umbel.testing.engines import Listening, Reversed
from umbel.testing.federations import SIZES, blobs
from umbel.testing.runs import ROUNDS, run_of, uninterrupted
from umbel.testing.sentences import told


@told
def newcomers_are_assigned_or_refused(algorithm: Algorithm[Any]) -> None:
    """`assign` gives each newcomer a score for each cluster, or raises a `UsageError`.

    There are more newcomers than clients that have trained, and their scores don't depend on how
    they are numbered.
    """
    # The number of newcomers is even, so that in reversed order even numbers become odd.
    state = uninterrupted(algorithm)[-1][0]
    run = run_of(algorithm, federation=blobs((*SIZES, *SIZES[:4]), seed=1))
    everyone = run.context(ROUNDS - 1, ROUNDS).everyone
    engine = Listening(Guarded(run.clients, Limits()))

    def found(engine: Engine) -> Assigned:
        return drive(as_flow(algorithm.assign(state, everyone), "assign"), engine)

    try:
        first, second = found(engine), found(Guarded(run.clients, Limits()))
    except UsageError:
        return
    assigned, again = (as_assigned(each, state, everyone) for each in (first, second))
    best = assigned.labels.max() if len(assigned.clients) else 0
    assert best < state.labels_end, f"assign finds cluster {best}, which does not exist"
    same = torch.equal(assigned.clients, again.clients) and torch.equal(
        assigned.scores, again.scores
    )
    assert same, "assign finds other scores of the same newcomers when it is called again"
    count = everyone.num_clients
    reverse = Reversed(Guarded(run.clients, Limits()), count, engine.seeds)
    turned = as_assigned(found(reverse), state, everyone)
    order, former = assigned.clients.argsort(), (count - 1 - turned.clients).argsort()
    clients, scores = assigned.clients[order], assigned.scores[order]
    alike = torch.equal(count - 1 - turned.clients[former], clients) and torch.allclose(
        turned.scores[former], scores, rtol=1e-6, atol=1e-9
    )
    assert alike, "assign finds other scores of newcomers when they are numbered in another order"


@told
def what_it_tells_fits_the_clients(algorithm: Algorithm[Any]) -> None:
    """`fit`, `profile` and `evidence` have a row for each client, or return that nothing is known.

    `measure` returns numbers, by names that records do not use for anything else.
    """
    run = run_of(algorithm)
    for state in (run.start(ROUNDS), *(state for state, _ in uninterrupted(algorithm))):
        size = len(state.labels)
        for name, dim in (("fit", 1), ("profile", 2)):
            value = getattr(algorithm, name)(state)
            whole = isinstance(value, Tensor) and value.dim() == dim and len(value) == size
            wanted = f"a tensor ({size},{' D' * (dim - 1)})"
            found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r}"
            assert value is None or whole, f"{name} returns {found} instead of {wanted}"
        as_measures(algorithm.measure(state), ())
        clients = evidence_of(algorithm, state).get("clients")
        known = clients is None or bool((clients < size).all())
        assert known, f"evidence is about clients {clients}, but there are {size}"
