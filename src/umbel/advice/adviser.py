"""Whether and how to cluster the clients of a federation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from umbel.advice.examples import pooled
from umbel.advice.facts import Facts, facts
from umbel.advice.fates import Fate, fates, tested
from umbel.advice.losses import with_examples
from umbel.advice.race import Allowance, contenders, learning_rate, race
from umbel.advice.structure import Structure, structure
from umbel.advice.trial import Standing, Track
from umbel.advice.verdict import Verdict, decide
from umbel.checks import check
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.runs.starting import check_settings
from umbel.settings import argument
from umbel.summary import in_short

LOCAL = LocalTraining(epochs=2)

FRACTION = 0.2
"""Share of the training examples that is set apart where there are none for validation."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Whether one model, several, or one each is best for these clients; `advise` gives one."""

    names: tuple[str, ...]  #: the clients
    facts: Facts  #: sizes, labels and drift
    structure: Structure  #: how clients differ before anything is trained
    standings: tuple[Standing, ...]  #: how the contenders of the race did
    verdict: Verdict  #: the answer
    fates: tuple[Fate, ...]  #: what the answer means to each client
    test: dict[str, tuple[float, float | None]]  #: name: loss and accuracy on test examples
    local: LocalTraining  #: how clients trained
    seed: int  #: of everything random

    __repr__ = in_short

    @property
    def clusters(self) -> dict[str, int]:
        """The cluster of each client, by name."""
        return dict(zip(self.names, self.verdict.clusters.tolist(), strict=True))

    def __str__(self) -> str:
        from umbel.advice.words import sentences

        return "\n".join(sentences(self))


def advise(
    federation: Federation,
    net: Net,
    *,
    local: LocalTraining | None = None,
    budget: int | str = 80,
    participation: float = 1.0,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Advice:
    """Find whether one model, several, or one each is best for these clients, and how sure that is.

    Before training, clients are compared by the halves of their examples; then ways to serve them
    race on validation examples (a fifth of the training examples, where there are no others) with
    `local` training, by default two epochs at the learning rate that suits one model best. The
    `budget` is how many rounds each may train for, or a time for all, such as "5m"; the result then
    depends on how fast the machine is. A share `participation` of the clients trains in each round;
    all fine-tune. Test examples are used once, for what is said of the answer at the end.
    `progress` is called with a line for each step. Raises `UsageError` for fewer than two clients,
    and for what is no budget.
    """
    federation = argument("federation", federation, Federation)
    check(isinstance(net, Net), "net", net, "a Net; write Net(lambda: MyModule(...))")
    check_settings(seed, participation, evaluate_every=1)
    count = federation.num_clients
    check(count >= 2, "federation", count, "two clients or more")
    allowance = Allowance.of(budget)
    progress("comparing clients")
    trial = for_selection(federation, seed)
    found = structure(pooled(trial, seed, net.objective), count, seed)
    out_of_time = allowance.clock()
    track = Track(
        federation=trial,
        net=net,
        seed=seed,
        out_of_time=out_of_time,
        participation=participation,
    )
    if local is None:
        progress("choosing a learning rate")
        local = replace(LOCAL, lr=learning_rate(track, LOCAL))
    standings = race(track, contenders(found, local), local, allowance, progress)
    standings = with_examples(net, trial, standings)
    verdict = decide(standings, found)
    progress("opening the test")
    return Advice(
        names=federation.names,
        facts=facts(federation, seed),
        structure=found,
        standings=standings,
        verdict=verdict,
        fates=fates(net, trial, verdict),
        test=tested(net, federation, verdict),
        local=local,
        seed=seed,
    )


def for_selection(federation: Federation, seed: int) -> Federation:
    """The clients with validation examples in place of test examples, which are not in it."""
    chosen_by = federation.validation
    clients = range(federation.num_clients)
    train = [federation.train.of(client) for client in clients]
    if chosen_by is None:
        return Federation.from_arrays(
            train,
            names=federation.names,
            num_classes=federation.num_classes,
            test_fraction=FRACTION,
            seed=seed,
        )
    return replace(federation, test=chosen_by, validation=None, groups=None)
