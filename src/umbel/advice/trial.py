"""One contender's training, judged round by round on validation examples."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.advice.examples import Floats, Ints
from umbel.algorithms import FixedClusters, LocalOnly
from umbel.algorithms.base import Algorithm, State
from umbel.checks import DivergedError, QuorumError
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.engines import EngineSettings
from umbel.engines.replies.faults import Faults
from umbel.engines.replies.validation import Limits
from umbel.flow import Rows
from umbel.run.participation import Participation
from umbel.run.records import EVALUATION, MEGABYTE
from umbel.run.rounds import Rounds
from umbel.run.scores import ClientScores
from umbel.run.start import unsaid
from umbel.summary import in_short

DIVERGED = "its models diverged"
"""Reason given when a contender's training diverges for too many clients."""

TIME_UP = "the time was up"

BEHIND = "behind "
"""Beginning of the reason if a contender is surely worse than another."""

Clock = Callable[..., bool]
"""Says whether the time is up now, or will be after a number of seconds."""

Bools = NDArray[np.bool_]

Kind = Literal["one", "clusters", "local"]

EVALUATIONS = 5
"""Number of evaluations of a contender between two comparisons with the others."""

PATIENCE = 0.5
"""A contender is settled if the last half of its rounds brought no improvement."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to serve the clients: one model, a model for each cluster or for each client."""

    name: str
    kind: Kind
    algorithm: Algorithm[Any]
    base: Contender | None = None  #: the way whose models clients fine-tune; None: they do not

    @property
    def tuned(self) -> bool:
        """True if clients fine-tune the model that they get."""
        return self.base is not None

    @property
    def num_clusters(self) -> int:
        """K of a clustered contender; 1 for others."""
        clusters = getattr(self.algorithm, "clusters", ())
        return getattr(self.algorithm, "num_clusters", None) or max(clusters, default=0) + 1


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The state of a contender's training, and its results in its best round."""

    contender: Contender
    rounds: int = 0  #: done
    state: State | None = None  #: after the last round
    best_round: int = 0  #: rounds done when its mean validation loss was the lowest
    loss: Floats  #: (M,) validation loss of each client in the best round, NaN if unknown
    #: (M,) validation accuracy in the best round; NaN for regression or if unknown
    accuracy: Floats
    clusters: Ints  #: (M,) clusters in the best round
    trained: Bools  #: (M,) clients whose training was used in some round
    refused: Bools  #: (M,) clients whose training diverged in some round
    served: Rows | None = None  #: the models that clients were served in the best round
    course: tuple[tuple[int, float], ...] = ()  #: pairs of rounds done and mean validation loss
    megabytes: float = 0.0  #: to and from each client, until the best round
    all_megabytes: float = 0.0  #: likewise, of all rounds
    examples: tuple[Floats, ...] = ()  #: each client's validation losses, if clients are few
    stopped: str = ""  #: why it was stopped; empty: it was not
    #: for fine-tuning: one model and these clusters, trained for as many further epochs; if one
    #: model is fine-tuned, all clusters that are
    rivals: tuple[Standing, ...] = ()

    __repr__ = in_short

    @property
    def mean(self) -> float:
        """Mean over clients of their validation losses in the best round."""
        known = self.loss[~np.isnan(self.loss)]
        return float(known.mean()) if len(known) else float("inf")

    @property
    def never_trained(self) -> Bools:
        """(M,) clients whose training diverged in every round in which they were asked."""
        return self.refused & ~self.trained

    @property
    def outrun(self) -> bool:
        """True if the way was stopped as worse, so that it can't be compared with others."""
        return self.stopped.startswith(BEHIND)

    @property
    def divided(self) -> bool:
        """True if clients are in more than one cluster; IFCA may leave clusters empty."""
        return len(np.unique(self.clusters)) > 1

    @property
    def merged(self) -> bool:
        """True if a way that should cluster ended with one model, started in another way."""
        return self.contender.kind == "clusters" and bool(self.course) and not self.divided

    @property
    def settled(self) -> bool:
        """True if the last half of its rounds brought no improvement."""
        return self.rounds > EVALUATIONS and self.best_round <= PATIENCE * self.rounds


def waiting(contender: Contender, num_clients: int) -> Standing:
    """A contender before its first round."""
    unknown = np.full(num_clients, np.nan)
    clusters = np.zeros(num_clients, dtype=np.int64)
    return Standing(
        contender=contender,
        loss=unknown,
        accuracy=unknown,
        clusters=clusters,
        trained=np.zeros(num_clients, dtype=bool),
        refused=np.zeros(num_clients, dtype=bool),
    )


@dataclass(frozen=True, kw_only=True)
class Track:
    """The data and settings that all contenders share."""

    #: its test split holds validation examples; the real test examples are not in it
    federation: Federation
    net: Net
    seed: int
    out_of_time: Clock  #: asked after every round
    judges: Bools  #: (M,) clients whose validation losses count
    participation: float | Participation = 1.0  #: share of the clients in a round, or how drawn
    engine: EngineSettings = field(default_factory=EngineSettings)  #: where clients work
    limits: Limits = field(default_factory=Limits)  #: limits on clients' replies
    faults: Faults = field(default_factory=Faults)  #: faults to simulate

    __repr__ = in_short

    def advance(self, standing: Standing, rounds: int) -> Standing:
        """Train until `rounds` rounds are done, or the time is up."""
        if standing.stopped or standing.rounds >= rounds:
            return standing
        step = max(1, (rounds - standing.rounds) // EVALUATIONS)
        run = Rounds(
            standing.contender.algorithm,
            self.federation,
            self.net,
            participation=self.participation,
            engine=self.engine,
            limits=self.limits,
            faults=self.faults,
            seed=self.seed,
            evaluate_every=step,
        )
        # It would say so of test examples, and again at each start; the advice says it once.
        blind = not self.federation.test.sizes.any()
        with unsaid() if blind else nullcontext():
            state = run.start(rounds) if standing.state is None else standing.state
        try:
            for after, record, scores in run.scored_rounds(rounds, state, standing.rounds):
                traffic = (record.bytes_down + record.bytes_up) / MEGABYTE
                spent = standing.all_megabytes + traffic / self.federation.num_clients
                cohort = run.context(record.round, rounds).cohort.numpy()
                failed = [n for n, why in record.refused.items() if not why.startswith(EVALUATION)]
                everyone = np.arange(self.federation.num_clients)
                asked = np.isin(everyone, cohort)
                used = asked & ~np.isin(everyone, [*failed, *record.missing])
                standing = replace(
                    standing,
                    rounds=record.round + 1,
                    state=after,
                    trained=standing.trained | used,
                    refused=standing.refused | (asked & np.isin(everyone, failed)),
                    all_megabytes=spent,
                )
                standing = standing if scores is None else judged(standing, scores, self.judges)
                if self.out_of_time() and standing.course:
                    return replace(standing, stopped=TIME_UP)
        except DivergedError:
            return replace(standing, stopped=DIVERGED)
        except QuorumError as error:
            return replace(standing, stopped=str(error))
        return standing

    def of_all(self) -> Track:
        """Return the run with all clients in every round, without regard to time."""
        return replace(self, participation=1.0, out_of_time=lambda ahead=0.0: False)  # noqa: ARG005


def to_tune(base: Standing, local: LocalTraining) -> Standing:
    """Each client trains on by itself, from the model that it was served in the best round."""
    assert base.served is not None
    models = base.served.table[base.served.index]
    contender = replace(
        base.contender,
        name=f"{base.contender.name}, fine-tuned",
        algorithm=LocalOnly(_by_epoch(local)),
        base=base.contender,
    )
    return _again(base, contender, State(models, torch.arange(len(models))))


def to_train_on(base: Standing, local: LocalTraining) -> Standing:
    """Return the way with averaging after each epoch, to tell tuning from longer training."""
    assert base.served is not None
    models, clusters = base.served.table, base.served.index
    algorithm = FixedClusters(clusters=tuple(clusters.tolist()), local=_by_epoch(local))
    name = f"{base.contender.name}, trained on"
    contender = replace(base.contender, name=name, algorithm=algorithm)
    return _again(base, contender, State(models, clusters))


def _by_epoch(local: LocalTraining) -> LocalTraining:
    """One epoch of what `[personal]` can do after the last round: with these settings alone."""
    return LocalTraining(
        lr=local.lr, epochs=1, batch_size=local.batch_size, optimizer=local.optimizer
    )


def _again(base: Standing, contender: Contender, state: State) -> Standing:
    """A standing that begins with the best models of another."""
    return replace(
        base,
        contender=contender,
        rounds=0,
        best_round=0,
        state=state,
        course=((0, base.mean),),
        stopped="",
    )


def judged(standing: Standing, scores: ClientScores, judges: Bools) -> Standing:
    """The standing after a new evaluation, which replaces the best results if it is better.

    Losses of clients that are not among the `judges` (M,) do not count.
    """
    loss, accuracy = (np.where(judges, each, np.nan) for each in (scores.loss, scores.accuracy))
    mean = float(np.nanmean(loss)) if not np.isnan(loss).all() else float("inf")
    course = (*standing.course, (standing.rounds, mean))
    if standing.course and mean >= standing.mean:
        return replace(standing, course=course)
    return replace(
        standing,
        course=course,
        best_round=standing.rounds,
        loss=loss,
        accuracy=accuracy,
        clusters=scores.clusters,
        served=scores.served.models,
        megabytes=standing.all_megabytes,
    )
