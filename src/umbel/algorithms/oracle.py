"""The oracle, FedAvg within the planted groups: the upper baseline of comparisons."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch

from umbel.algorithms.base import Algorithm, Setup, State, Traits, federate
from umbel.checks import check
from umbel.client.work import LocalTraining
from umbel.flow import Flow
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context


@dataclass(frozen=True)
class Oracle(Algorithm[State]):
    """Average within the planted groups, unknown to real servers: an upper baseline.

    A run on a federation without planted groups raises `UsageError` before its first round.
    """

    traits: ClassVar[Traits] = Traits(needs_groups=True)

    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def init(self, setup: Setup) -> State:
        planted = setup.groups is not None
        check(
            planted, "scenario", "no planted groups", "one with planted groups, as the oracle needs"
        )
        assert setup.groups is not None
        # Group numbers may have gaps: labels are their positions, 0 to K-1.
        labels = torch.unique(setup.groups, return_inverse=True)[1]
        return State(setup.copies(int(labels.max()) + 1), labels)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        return (yield from federate(state, ctx, self.local, self.averaging))
