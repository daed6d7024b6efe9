"""A check of a method whose clients come and leave."""

from __future__ import annotations

from typing import Any

import torch

from umbel.algorithms.base import Algorithm
from umbel.run.membership import Event, Membership
from umbel.server.numbering import in_order_of_appearance
from umbel.testing.federations import SIZES, blobs
from umbel.testing.runs import ROUNDS, run_of
from umbel.testing.sentences import saying, told

EVENTS = (
    Event(1, joins=("8",)),
    Event(2, leaves=("0", "3")),
    Event(4, joins=("0", "9"), leaves=("1",)),
)


@told
def clients_may_come_and_leave(algorithm: Algorithm[Any]) -> None:
    """Rounds work with newcomers and without those who have left; others keep their clusters."""
    membership = Membership(EVENTS, forget_after=1)
    run = run_of(algorithm, federation=blobs((*SIZES, 9, 10)), membership=membership)
    with saying("where clients come and leave"):
        for number, (state, _) in enumerate(run.rounds(ROUNDS), start=1):
            kept = torch.from_numpy(run.members(number).kept)
            after = algorithm.members(state, kept, run.setup(ROUNDS, number)).labels[: len(kept)]
            was, now = (in_order_of_appearance(one.numpy()) for one in (state.labels[kept], after))
            assert was.tolist() == now.tolist(), "clients who stay are in other clusters"
