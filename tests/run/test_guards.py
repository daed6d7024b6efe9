"""What clients claim is bounded where it counts, and only there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.federations import blobs, mlp
from umbel.algorithms import (
    CFLGP,
    IFCA,
    FedAvg,
    LocalOnly,
    Sattler,
)
from umbel.algorithms.base import Algorithm, Traits
from umbel.client.work import LocalTraining
from umbel.engines.replies.validation import Limits
from umbel.result.run import Run
from umbel.run.records import Record
from umbel.server.aggregation import Averaging

LOCAL = LocalTraining(epochs=1)
EQUALLY = Averaging("equal")

PLAIN: dict[str, Algorithm[Any]] = {
    "fedavg": FedAvg(LOCAL, EQUALLY),
    "ifca": IFCA(2, LOCAL, EQUALLY),
    "cfl-gp": CFLGP(2, local=LOCAL),
    "sattler": Sattler(LOCAL, averaging=EQUALLY),
    "local-only": LocalOnly(LOCAL),
}
"""Methods in which a client counts as one, however many examples it has."""


@dataclass(frozen=True)
class Mine(LocalOnly):
    """A method of somebody's own that says nothing of what clients weigh."""

    traits = Traits()


def first(method: Algorithm[Any]) -> Record:
    """The first round's record, of clients of which one has most of the examples."""
    run = Run(method, blobs((300, 10, 10)), mlp(), limits=Limits(max_share=0.5))
    ((_, record),) = run.rounds(1)
    return record


@pytest.mark.parametrize("method", PLAIN.values(), ids=PLAIN)
def test_a_claim_that_weighs_nothing_is_not_bounded(method: Algorithm[Any]) -> None:
    assert not first(method).bounded


@pytest.mark.parametrize(
    "method", [FedAvg(LOCAL), IFCA(2, LOCAL), Mine(LOCAL)], ids=lambda one: type(one).__name__
)
def test_a_claim_that_weighs_or_may_weigh_is_bounded(method: Algorithm[Any]) -> None:
    assert first(method).bounded[0].startswith("num_examples: 300 counted as ")
