"""Advice as plain values, to be written to a folder, printed and drawn."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from umbel.advice.advice import Advice, sentences
from umbel.advice.facts import Facts
from umbel.advice.gains import lead, one_beside
from umbel.advice.structure import Difference
from umbel.advice.trial import Standing
from umbel.run.scores import number_or_none


@dataclass(frozen=True, kw_only=True)
class ContenderRow:
    """The results of one way to serve the clients."""

    name: str
    rounds: int  # done
    best_round: int  # rounds done when its mean validation loss was the lowest
    loss: float | None = None  # mean over clients, on validation examples
    accuracy: float | None = None  # likewise; None: no such measure
    gain: float | None = None  # how much lower its loss is than that of one model, trained as long;
    # None: it was stopped because it was surely worse than another way
    low: float | None = None  # 95% interval of the gain; None: there is none
    high: float | None = None
    megabytes: float = 0.0  # to and from each client, until the best round
    stopped: str = ""  # why it was stopped early
    test_loss: float | None = None  # None: its test was not opened
    test_accuracy: float | None = None
    course_rounds: tuple[int, ...] = ()
    course_losses: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClientRow:
    """The effect of the answer on one client."""

    name: str
    cluster: int
    gain: float | None = None  # in validation loss, over one model
    error: float | None = None  # its standard error
    over_alone: float | None = None  # in validation loss, over training alone
    fate: str = ""  # "gains", "hurt", or "" if its examples are too few to tell


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The results of `umbel advise`."""

    answer: str
    num_clusters: int
    fine_tune: bool
    chosen: str  # the contender that is advised
    sentences: tuple[str, ...]
    facts: Facts
    differences: tuple[Difference, ...]
    num_groups: int  # distributions that the examples seem to come from
    contenders: tuple[ContenderRow, ...]
    clients: tuple[ClientRow, ...]
    lr: float
    seed: int
    # "examples" if there are too few clients
    interval_over: Literal["clients", "examples"] = "clients"
    data_dir: str = ""  # the option --data-dir, where it was given


def summary(advice: Advice) -> Summary:
    """The advice without models and examples."""
    verdict = advice.verdict
    return Summary(
        answer=verdict.answer,
        num_clusters=verdict.num_clusters,
        fine_tune=verdict.tuned,
        chosen=verdict.chosen.contender.name,
        sentences=tuple(sentences(advice)),
        facts=advice.facts,
        differences=advice.structure.differences,
        num_groups=advice.structure.num_groups,
        contenders=tuple(_row(each, advice) for each in advice.standings),
        clients=tuple(
            ClientRow(
                name=name,
                cluster=cluster,
                gain=number_or_none(fate.gain),
                error=number_or_none(fate.error),
                over_alone=number_or_none(fate.over_alone),
                fate="gains" if fate.gains else "hurt" if fate.hurt else "",
            )
            for (name, cluster), fate in zip(advice.clusters.items(), advice.fates, strict=True)
        ),
        lr=advice.local.lr,
        seed=advice.seed,
        interval_over="examples" if verdict.one.examples else "clients",
    )


def _row(standing: Standing, advice: Advice) -> ContenderRow:
    one = advice.verdict.one
    over_one = lead(standing, one_beside(standing, one))
    test_loss, test_accuracy = advice.test.get(standing.contender.name, (None, None))
    whole = not standing.outrun
    known = standing.accuracy[standing.accuracy == standing.accuracy]
    course = [(done, loss) for done, loss in standing.course if isfinite(loss)]
    return ContenderRow(
        name=standing.contender.name,
        rounds=standing.rounds,
        best_round=standing.best_round,
        loss=number_or_none(standing.mean),
        accuracy=float(known.mean()) if len(known) else None,
        gain=number_or_none(over_one.mean) if whole and standing is not one else None,
        low=number_or_none(over_one.low) if whole else None,
        high=number_or_none(over_one.high) if whole else None,
        megabytes=standing.megabytes,
        stopped=standing.stopped,
        test_loss=number_or_none(test_loss),
        test_accuracy=number_or_none(test_accuracy),
        course_rounds=tuple(done for done, _ in course),
        course_losses=tuple(loss for _, loss in course),
    )
