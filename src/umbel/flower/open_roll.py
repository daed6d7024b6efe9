"""A roll that stays open: clients join and leave while a run goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from umbel.checks import QuorumError
from umbel.client.objectives import Objective
from umbel.flower.engine import FlowerEngine
from umbel.flower.registry import Roll, named_clients
from umbel.run.membership import Attendance, Change, Membership

log = logging.getLogger(__name__)


def there_at_last(roll: Roll) -> set[int]:
    """The numbers of the clients that were there in the last round that the roll knows."""
    there = set(range(roll.began))
    for _, joined, left in roll.changes:
        there = (there | set(joined)) - set(left)
    return there


@dataclass
class OpenRoll:
    """Looks around before each round: who is connected takes part in it.

    What it finds is kept in the roll, by which a resumed run repeats the rounds that it must.
    """

    engine: FlowerEngine
    roll: Roll
    objective: Objective
    decided: int  # number of rounds for which it is known who is there
    patience: float  # seconds to wait if nobody is there
    keep: Callable[[Roll], None]  # writes the roll
    greetings: int = 0  # answers to greetings that the roll knows

    def open(self, membership: Membership) -> None:
        """Have the engine know who is there."""
        self.engine.attendance = Attendance(
            range(self.roll.began), membership.forget_after, self._change
        )
        self._take(self.roll)

    def _take(self, roll: Roll) -> None:
        self.roll, engine = roll, self.engine
        engine.clients, engine.facts = roll.names, roll.facts
        engine.federation = roll.federation(self.objective)

    def _change(self, number: int, here: NDArray[np.int64]) -> Change:
        """Who has come and left before a round: as noted, or as it is now."""
        for noted, came, gone in self.roll.changes:
            if noted == number:
                return set(came), set(gone)
        if number < self.decided:
            return set(), set()
        meeting = self.engine.meeting
        places = meeting.look_around() or meeting.gather(1, self.patience)
        if not places:
            why = "no node is connected; the same `flwr run` goes on when one is"
            raise QuorumError(f"round {number}: {why}")
        self.decided = number + 1
        roll, greetings = self.roll, meeting.precedence.greetings
        if greetings != self.greetings:  # nodes have said which clients they have
            self.greetings, roll = greetings, roll.now(places, meeting.sites)
        there = {place for place, name in enumerate(roll.names) if name in places}
        joined, left = there - set(here.tolist()), set(here.tolist()) - there
        for what, who in (("there from", joined), ("not there in", left)):
            if who:
                names = [roll.names[client] for client in sorted(who)]
                log.info("%s %s round %d", named_clients(names), what, number)
        if joined or left:
            change = number, sorted(joined), sorted(left)
            roll = replace(roll, changes=[*roll.changes, change])
        if roll is not self.roll:
            self.keep(roll)
            self._take(roll)
        return joined, left
