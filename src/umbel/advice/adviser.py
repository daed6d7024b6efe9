"""The advice: cluster the clients of a federation or not, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from umbel.advice.advice import Advice
from umbel.advice.examples import pooled
from umbel.advice.facts import facts
from umbel.advice.gain_per_client import fates, tested
from umbel.advice.losses import judges, with_examples
from umbel.advice.race import RACE, Allowance, contenders, fine_tuned, learning_rate, race
from umbel.advice.structure import structure
from umbel.advice.trial import Track
from umbel.advice.verdict import decide
from umbel.algorithms import FedAvg, FixedClusters, LocalOnly
from umbel.algorithms.base import Algorithm, State
from umbel.checks import check
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.engines import EngineSettings
from umbel.engines.replies.faults import Faults
from umbel.engines.replies.validation import Limits
from umbel.experiment.experiment import LONGEST_NAME, ExperimentSettings
from umbel.run.participation import Participation
from umbel.run.personal import Personal
from umbel.run.start import check_settings
from umbel.settings import MOST_ITEMS, argument, hinting

LOCAL = LocalTraining(epochs=2)

FRACTION = 0.2
"""Share of the training examples used for validation if there are no validation examples."""


@hinting
def advise(
    federation: Federation,
    net: Net,
    *,
    local: LocalTraining | None = None,
    budget: int | str = 80,
    participation: float | Participation = 1.0,
    engine: EngineSettings | None = None,
    limits: Limits | None = None,
    faults: Faults | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Advice:
    """Decide whether one model, several, or one for each client is best, and how sure that is.

    Before training, clients are compared by halves of their examples. Then several ways to serve
    the clients (one model, clusters, training alone, each also with fine-tuning) are trained and
    compared on validation examples, or on a fifth of the training examples if there are none.
    Clients train as `local` says, by default for two epochs a round at the learning rate that suits
    one model best. `budget` is the number of rounds for each way, or a time for all of them such as
    "5m"; with a time, the result depends on the speed of the machine. A share `participation` of
    the clients trains in each round; all clients fine-tune. `engine`, `limits` and `faults` are as
    in a `Run`. Test examples are used only once, to report the results of the answer. `progress` is
    called with a line of text for each step. Raises `UsageError` for fewer than two clients, for
    more than 10,000, for an invalid budget, and where training of one model diverges. Raises
    `QuorumError` where too few clients answer before one model is evaluated.
    """
    federation = argument("federation", federation, Federation)
    check(isinstance(net, Net), "net", net, "a Net; write Net(lambda: MyModule(...))")
    check_settings(seed, participation, evaluate_every=1)
    count = federation.num_clients
    check(count >= 2, "federation", count, "two clients or more")
    # The answer is a list with an entry for each client, as an experiment has it, too.
    check(count <= MOST_ITEMS, "federation", count, f"at most {MOST_ITEMS:,} clients")
    allowance = Allowance.of(budget)
    progress(str(allowance))
    race_over, over = allowance.clock(RACE), allowance.clock()
    progress("comparing clients")
    trial = for_selection(federation, seed)
    found = structure(pooled(trial, seed, net.objective), count, seed)
    track = Track(
        federation=trial,
        net=net,
        seed=seed,
        out_of_time=race_over,
        judges=judges(trial.test),
        participation=participation,
        engine=engine or EngineSettings(),
        limits=limits or Limits(),
        faults=faults or Faults(),
    )
    if local is None:
        progress("choosing a learning rate")
        local = replace(LOCAL, lr=learning_rate(track, LOCAL))
    standings = race(track, contenders(found, local), local, allowance, progress)
    standings = with_examples(net, trial, standings)
    progress("fine-tuning")
    tuning = replace(track, out_of_time=over)
    tuned = () if over() else tuple(fine_tuned(tuning, standings, found, local, allowance))
    standings = (*standings, *with_examples(net, trial, tuned))
    progress("opening the test")
    verdict = decide(standings, found)
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
    """The clients with validation examples in place of test examples, which are left out."""
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


def algorithm_of(advice: Advice) -> Algorithm[State]:
    """The method that the answer names, with the local training of the race."""
    verdict, local = advice.verdict, advice.local
    kind = verdict.chosen.contender.kind
    if kind == "clusters":
        numbers = tuple(verdict.clusters.tolist())
        return FixedClusters(clusters=numbers, clients=advice.names, local=local)
    if kind == "local":
        return LocalOnly(local=local)
    return FedAvg(local=local)


def next_experiment(advice: Advice, asked: ExperimentSettings) -> ExperimentSettings:
    """The experiment to run next on the data of `asked`."""
    chosen = advice.verdict.chosen
    trained = chosen.contender.base or chosen.contender
    base = next(each for each in advice.standings if each.contender == trained)
    return replace(
        asked,
        # Cut where it would be too long for a folder, between characters.
        name=f"advised-{asked.name}".encode()[:LONGEST_NAME].decode(errors="ignore"),
        description="what umbel advise found best",
        algorithm=algorithm_of(advice),
        seed=advice.seed,
        rounds=max(1, base.best_round),
        personal=_personal(advice),
    )


def _personal(advice: Advice) -> Personal | None:
    """Return the fine-tuning of clients, if that is advised."""
    if not advice.verdict.tuned:
        return None
    apart = None if advice.facts.validation else FRACTION
    local = advice.local
    return Personal(
        lr=local.lr,
        batch_size=local.batch_size,
        optimizer=local.optimizer,
        validation_fraction=apart,
    )
