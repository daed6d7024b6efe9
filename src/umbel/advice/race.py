"""A race between ways to serve the clients, on validation examples, under a budget.

All ways train side by side; clusterings that are surely worse than another way stop early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, isinf
from time import monotonic

from umbel.advice.gains import SURE, gain
from umbel.advice.structure import Structure
from umbel.advice.trial import (
    BEHIND,
    DIVERGED,
    TIME_UP,
    Clock,
    Contender,
    Standing,
    Track,
    to_train_on,
    to_tune,
    waiting,
)
from umbel.advice.verdict import preferred_clusters
from umbel.algorithms import IFCA, FedAvg, FixedClusters, LocalOnly
from umbel.checks import QuorumError, UsageError, check
from umbel.client.work import LocalTraining
from umbel.preflight.network import advice as to_change
from umbel.run.stopping import seconds
from umbel.summary import counted, duration

RATES = (0.3, 0.1, 0.03, 0.01)
"""Learning rates that are tried, where none is given."""

ROUNDS_A_RATE = 5

FIRST = 20
"""Rounds before the first comparison of contenders; each later one is after twice as many."""

MOST_ROUNDS = 1_000_000
"""Largest number of rounds that a budget may allow."""

LONG = 2_000
"""Largest number of rounds where the budget is a time."""

EPOCHS = 10
"""Most epochs of fine-tuning."""


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """The limits of a race, in rounds and seconds."""

    rounds: int = 80  #: most rounds of a contender
    seconds: float = inf  #: of time; the result then depends on how fast the machine is

    def __post_init__(self) -> None:
        check(1 <= self.rounds <= MOST_ROUNDS, "rounds", self.rounds, f"1 to {MOST_ROUNDS:,}")
        check(self.seconds > 0, "budget", self.seconds, "more than 0 seconds")

    @classmethod
    def of(cls, budget: int | str) -> Allowance:
        """Read rounds, or a time such as "5m". Raises `UsageError` for anything else."""
        text = str(budget)
        try:
            if text.isdecimal():
                return cls(rounds=int(text[:10]))
            # A fraction without a unit would mean seconds, which is surely a mistake.
            check(not text[-1:].isdecimal(), "budget", budget, "a time with a unit")
            return cls(rounds=LONG, seconds=seconds(text))
        except UsageError:
            expected = "rounds, 1 or more, or a time such as 90s, 5m, 1.5h"
            raise UsageError(f"budget: {budget!r} is not {expected}") from None

    def __str__(self) -> str:
        if isinf(self.seconds):
            return (
                f"budget: {counted(self.rounds, 'round')} for each way; write 5m for five minutes"
            )
        return f"budget: {duration(self.seconds)} for all ways together"

    def clock(self, share: float = 1.0) -> Clock:
        """A function that says whether this share of the time, which begins now, is up.

        It can be asked of a moment some seconds ahead.
        """
        end = monotonic() + share * self.seconds
        return lambda ahead=0.0: monotonic() + ahead >= end


Told = Callable[[str], None]

RACE = 0.6
"""Share of the time after which only the best ways go on, with fine-tuning."""


def learning_rate(track: Track, local: LocalTraining) -> float:
    """The rate under which one model for all has the lowest validation loss after a few rounds.

    Raises `UsageError` where training diverges under every rate, and `QuorumError` where clients
    were silent before an evaluation.
    """
    found: dict[float, float] = {}
    partly: dict[float, float] = {}  # of rates whose training was stopped later
    why = ""
    for rate in RATES:
        contender = _one(replace(local, lr=rate))
        standing = waiting(contender, track.federation.num_clients)
        after = track.advance(standing, ROUNDS_A_RATE)
        if not after.stopped:
            found[rate] = after.mean
        elif after.stopped != DIVERGED:  # by silence, or by divergence among simulated faults
            why = after.stopped
            if after.course:
                partly[rate] = after.mean
    if not (found or partly):
        if why:
            raise QuorumError(why)
        tried = ", ".join(map(str, RATES))
        raise UsageError(
            f"training diverged at every learning rate that was tried, {tried}: "
            f"{to_change(track.federation)}"
        )
    found = found or partly
    return min(found, key=lambda rate: found[rate])


def contenders(structure: Structure, local: LocalTraining) -> tuple[Contender, ...]:
    """One model, one for each client, and clusters: by descriptors, and by IFCA."""
    found = [_one(local), Contender(name="train alone", kind="local", algorithm=LocalOnly(local))]
    for count in _counts(structure):
        clusters = tuple(structure.groupings[count - 1].tolist())
        algorithm = FixedClusters(clusters=clusters, local=local)
        name = f"{count} clusters"
        found.append(Contender(name=name, kind="clusters", algorithm=algorithm))
    for many in sorted({2, max(2, structure.num_groups)}):
        if many <= len(structure.groupings[0]):
            ifca = IFCA(num_clusters=many, local=local)
            found.append(
                Contender(name=f"{many} clusters by IFCA", kind="clusters", algorithm=ifca)
            )
    return tuple(found)


def race(
    track: Track, all_: Sequence[Contender], local: LocalTraining, allowance: Allowance, told: Told
) -> tuple[Standing, ...]:
    """Train all contenders, in comparison with each other."""
    standings = [waiting(each, track.federation.num_clients) for each in all_]
    for goal in _goals(allowance.rounds):
        running = [each for each in standings if not each.stopped]
        told(f"round {goal} of {allowance.rounds}: {len(running)} contenders")
        standings = [_advanced(track, each, goal) for each in standings]
        _check_trained(standings[0], track, local)
        if goal < allowance.rounds:
            standings = _without_losers(standings)
    return tuple(standings)


def _advanced(track: Track, standing: Standing, goal: int) -> Standing:
    """The standing after more rounds; if the time is up, no way but one model is begun."""
    if standing.stopped or standing.settled:
        return standing
    if not standing.course and standing.contender.kind != "one" and track.out_of_time():
        return replace(standing, stopped=TIME_UP)
    return track.advance(standing, goal)


def fine_tuned(
    track: Track,
    standings: Sequence[Standing],
    structure: Structure,
    local: LocalTraining,
    allowance: Allowance,
) -> Iterator[Standing]:
    """Fine-tuned versions of one model and the best clusters, each with its rivals.

    The best clusters are those with the lowest loss, and those that can be the answer.
    """
    one = standings[0]
    clustered = [each for each in standings if each.contender.kind == "clusters" and each.divided]
    lowest = min(clustered, key=lambda each: each.mean, default=None)
    best = (one, lowest, preferred_clusters(standings, structure))
    bases = [base for base in standings if base.course and any(base is each for each in best)]
    # Fine-tuning means more epochs, so that it is compared with rivals trained for as many.
    starts = [to_train_on(base, local) for base in bases] + [to_tune(base, local) for base in bases]
    ended = _side_by_side(track, starts, allowance)
    further = ended[: len(bases)]
    ways = zip(bases, further, starts[len(bases) :], ended[len(bases) :], strict=True)
    for base, longer, start, found in ways:
        rivals = tuple(further) if base is one else (further[0], longer)
        fewest = min(each.rounds for each in rivals)
        # Fewer if a rival diverged.
        way = track.of_all().advance(start, fewest) if 0 < fewest < found.rounds else found
        yield replace(way, clusters=base.clusters, megabytes=base.megabytes, rivals=rivals)


def _side_by_side(
    track: Track, standings: Sequence[Standing], allowance: Allowance
) -> list[Standing]:
    """The standings after `EPOCHS` epochs of all clients, or fewer, equally many, if time is up."""
    everyone, found, began = track.of_all(), list(standings), monotonic()
    for epoch in (EPOCHS,) if isinf(allowance.seconds) else range(1, EPOCHS + 1):
        found = [everyone.advance(each, epoch) for each in found]
        if epoch < EPOCHS and track.out_of_time((monotonic() - began) / epoch):
            return [replace(each, stopped=each.stopped or TIME_UP) for each in found]
    return found


def _check_trained(one: Standing, track: Track, local: LocalTraining) -> None:
    """Raise an error if one model, with which all ways are compared, was never evaluated.

    It is a `UsageError` if it diverged, and a `QuorumError` if too few clients answered.
    """
    if one.course:
        return
    if one.stopped != DIVERGED:
        raise QuorumError(one.stopped)
    raise UsageError(
        f"training of one model diverged at learning rate {local.lr:g}: "
        f"{to_change(track.federation)}"
    )


def _one(local: LocalTraining) -> Contender:
    return Contender(name="one model", kind="one", algorithm=FedAvg(local=local))


def _counts(structure: Structure) -> list[int]:
    """The numbers of clusters to try: what the descriptors show, fewer, and one more."""
    wanted = structure.num_groups
    if wanted == 1:
        return []
    tried = {2, (wanted + 1) // 2, wanted - 1, wanted, wanted + 1}
    return sorted(count for count in tried if 2 <= count <= len(structure.groupings))


def _goals(rounds: int) -> Iterator[int]:
    goal = FIRST
    while goal < rounds:
        yield goal
        goal *= 2
    yield rounds


def _without_losers(standings: Sequence[Standing]) -> list[Standing]:
    """Return the ways, with those clusters stopped that are surely behind the best way.

    One model and training alone are never stopped: the advised way is compared with both.
    """
    # Clusters that became one model tell nothing about other clusters, only about its start.
    best = min((s for s in standings if not s.merged), key=lambda each: each.mean)
    return [
        replace(each, stopped=f"{BEHIND}{best.contender.name}")
        if each.contender.kind == "clusters" and not each.stopped and _far_behind(each, best)
        else each
        for each in standings
    ]


def _far_behind(standing: Standing, best: Standing) -> bool:
    """Return True if its mean loss is surely higher, by a t-test."""
    lead = gain(best.loss, standing.loss)
    return lead.mean > 0 and lead.p_value <= SURE
