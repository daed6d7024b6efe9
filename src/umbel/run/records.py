"""One round's measurements: a line of `records.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from numbers import Real
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from umbel.algorithms.watched import QUARANTINE
from umbel.engines.metering import Spent
from umbel.files.seals import KEY
from umbel.notebooks import named
from umbel.run.metrics import judged, means
from umbel.run.scores import (
    VALIDATION,
    ClientScores,
    clustering_of,
    number_or_none,
    quality_of,
    tuning_of,
    validation_of,
)
from umbel.summary import counted, number_text

MEGABYTE = 1e6

NO_CLIENTS: Mapping[Any, Any] = MappingProxyType({})
NOTHING_SPENT = Spent()
EVERYONE = slice(None)

EVALUATION = "evaluation: "
"""Prefix of the reason if an answer to an evaluation was not used."""


@dataclass(frozen=True)
class Record:
    """The measurements of one round of a run; None for values that are not known or not measured.

    It is a line of `records.jsonl` in a run's folder. Accuracies are shares in [0, 1]. If clients
    have validation examples, rounds are evaluated on these, and test measures are taken only once,
    after the run's last round. Clusters are those by which clients are served. If serving needs an
    answer of the clients, as in IFCA, clusters are known only in evaluated rounds.
    """

    round: int  #: counted from 0
    _: KW_ONLY
    step: int | None = None  #: step of time, counted from 0; None: the run has no time
    loss: float | None = None  #: mean over clients of the mean test loss of each
    accuracy: float | None = None  #: mean over clients of each one's test accuracy
    worst: float | None = None  #: the worst client's accuracy
    accuracy_std: float | None = None  #: standard deviation over clients
    #: share of all test examples that were classified correctly
    weighted_accuracy: float | None = None
    #: as `loss`, on validation examples, if clients have any
    validation_loss: float | None = None
    validation_accuracy: float | None = None  #: as `accuracy`, on validation examples
    num_clusters: int | None = None  #: number of clusters that have clients
    #: cluster of each client at the end of a step of time, -1 for those without examples in it
    clusters: tuple[int, ...] | None = None
    #: test accuracy of each client, likewise; None where it is not known
    client_accuracies: tuple[float | None, ...] | None = None
    client_losses: tuple[float | None, ...] | None = None  #: test loss of each client, likewise
    #: number of models that the method trains; it changes when clients are clustered
    num_models: int | None = None
    ari: float | None = None  #: adjusted Rand index against the planted groups
    purity: float | None = None  #: share of clients in the majority group of their cluster
    nmi: float | None = None  #: normalised mutual information with the planted groups
    bytes_down: int = 0  #: bytes sent to all clients together, without evaluation
    bytes_up: int = 0  #: bytes sent by all clients together, without evaluation
    #: number of gradients of single examples, of all clients, models and passes together; None: not
    #: known
    gradient_evaluations: int | None = None
    #: number of losses of single examples without a gradient, of all clients together, without
    #: evaluation; None: not known
    loss_evaluations: int | None = None
    seconds: float = 0.0  #: duration of the round, without evaluation
    client_seconds: float = 0.0  #: part of `seconds` spent waiting for clients
    #: part of `seconds` spent finding clusters; None: not known
    clustering_seconds: float | None = None
    #: clients that came before the round, or came back; None: the run has no membership
    joined: tuple[int, ...] | None = None
    left: tuple[int, ...] | None = None  #: clients that left before the round, likewise
    #: clients in another cluster than after the round before, likewise; none if the number of
    #: models changed
    moved: tuple[int, ...] | None = None
    #: suspicion of each client, None for those that have not come or are forgotten; None: the run
    #: has no `limits.quarantine`
    suspicion: tuple[float | None, ...] | None = None
    missing: tuple[int, ...] = ()  #: clients that did not answer, in training or in evaluation
    #: client -> why its reply was not used
    refused: Mapping[int, str] = field(default_factory=dict)
    #: client -> how its weight or step was bounded
    bounded: Mapping[int, str] = field(default_factory=dict)
    #: measures that the method adds, and means over clients of the run's metrics
    measures: Mapping[str, float | None] = field(default_factory=dict)

    def __repr__(self) -> str:
        parts = [f"Record: round {self.round}"]
        parts += self.quality()
        if self.num_clusters is not None:
            parts.append(counted(self.num_clusters, "cluster"))
        if self.ari is not None:
            parts.append(f"ARI {number_text(self.ari, 2)}")
        absent = self.num_absent
        return ", ".join([*parts, f"{absent} absent"] if absent else parts)

    def _repr_html_(self) -> str:
        known = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "measures"}
        known |= self.measures
        for name in (*MOVES, "missing", "refused", "bounded"):
            known[name] = None if known[name] is None else len(known[name])
        lines = [(name, _said(value)) for name, value in known.items() if value is not None]
        return named(lines, repr(self))._repr_html_()

    @property
    def num_absent(self) -> int:
        """Number of clients that were missing or refused, each counted once."""
        return len({*self.missing, *self.refused})

    @property
    def quarantined(self) -> tuple[int, ...]:
        """The clients whose replies were set aside by `limits.quarantine`."""
        return tuple(n for n, why in self.refused.items() if why.startswith(QUARANTINE))

    def judged(self, measure: str) -> float | None:
        """The value of a measure; for "accuracy" and "loss", the one that the round is judged by.

        That is the value on validation examples if there is one, otherwise the value on test
        examples.
        """
        value: float | None = getattr(self, f"validation_{measure}", None)
        return getattr(self, measure) if value is None else value

    def quality(self) -> list[str]:
        """Results of the models for a log line: a phrase for each evaluated split."""
        said = []
        for split, kind in (("validation_", "validation "), ("", "")):
            accuracy, loss = getattr(self, f"{split}accuracy"), getattr(self, f"{split}loss")
            if accuracy is not None:
                said.append(f"{kind}accuracy {accuracy:.3f}")
            elif loss is not None:
                said.append(f"{kind}loss {loss:.4g}")
        return said

    def untimed(self) -> Record:
        """Return the record without times, the only difference if a run is repeated."""
        return replace(self, seconds=0.0, client_seconds=0.0, clustering_seconds=None)

    def sharing_time(self, runs: int) -> Record:
        """Return the record with its share of the seconds, for runs that were done side by side."""
        clustering = None if self.clustering_seconds is None else self.clustering_seconds / runs
        seconds, waiting = self.seconds / runs, self.client_seconds / runs
        return replace(self, seconds=seconds, client_seconds=waiting, clustering_seconds=clustering)

    def evaluated(
        self,
        scores: ClientScores,
        groups: NDArray[np.int64] | None,
        share: float = 1.0,
        here: NDArray[np.int64] | slice = EVERYONE,
    ) -> Record:
        """Return the record with the results of an evaluation on test examples.

        `share` is the largest weight of one client in means over examples; `here` are the clients
        whose clusters count.
        """
        measures = {**self.measures, **tuning_of(scores), **means(scores)}
        there = None if groups is None else groups[here]
        clustering = clustering_of(scores.clusters[here], there)
        return replace(self, **quality_of(scores, share), **clustering, measures=measures)

    def at_end(self, scores: ClientScores, here: NDArray[np.int64] | slice) -> Record:
        """Return the record of the last round of a step, with clients' results in it.

        Clusters are of those `here`, who have examples of the step.
        """
        clusters = np.full_like(scores.clusters, -1)
        clusters[here] = scores.clusters[here]
        return replace(
            self,
            clusters=tuple(clusters.tolist()),
            client_accuracies=tuple(map(number_or_none, scores.accuracy.round(6).tolist())),
            client_losses=tuple(map(number_or_none, scores.loss.round(6).tolist())),
        )

    def validated(self, scores: ClientScores) -> Record:
        """Return the record with the results of an evaluation on validation examples."""
        measures = {**self.measures, **means(scores, VALIDATION)}
        return replace(self, **validation_of(scores), measures=measures)

    def unjudged(
        self, missing: Iterable[int], refused: Mapping[int, str], bounded: Mapping[int, str]
    ) -> Record:
        """Return the record with the clients whose evaluation is missing, refused or bounded."""
        everyone = tuple(sorted({*self.missing, *missing}))
        return replace(
            self,
            missing=everyone,
            refused=_with_evaluation(self.refused, refused),
            bounded=_with_evaluation(self.bounded, bounded),
        )

    def to_json(self) -> str:
        """One line of JSON; measures that the method adds are on the same level as the others."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "measures"}
        if not self.bounded:  # in most records
            del values["bounded"]
        # Only runs with time, membership, or validation examples have these.
        some = ("step", *LISTS, "validation_loss", "validation_accuracy")
        for name in some:
            if values[name] is None:
                del values[name]
        return json.dumps({**values, **self.measures}, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Record:
        """Read a line that `to_json` has written, with or without a seal.

        Raises `ValueError`, `LookupError` or `TypeError` for what is no whole record.
        """
        values: dict[str, Any] = json.loads(line)
        own = {f.name for f in fields(cls)}
        # Keys that are no fields are the method's measures and the run's metrics.
        measures = {name: values[name] for name in values if name not in own and name != KEY}
        known = {name: values[name] for name in values if name in own}
        known["missing"] = tuple(known["missing"])
        for name in known.keys() & {*LISTS}:
            known[name] = tuple(known[name])
        for name in ("refused", "bounded"):
            known[name] = {int(client): why for client, why in known.get(name, {}).items()}
        return cls(**known, measures=measures)


def make_record(
    number: int,
    clusters: NDArray[np.int64] | None,
    groups: NDArray[np.int64] | None,
    scores: ClientScores | None,
    *,
    validation: ClientScores | None = None,
    spent: Spent = NOTHING_SPENT,
    clustering_seconds: float | None = None,
    missing: Iterable[int] = (),
    refused: Mapping[int, str] = NO_CLIENTS,
    bounded: Mapping[int, str] = NO_CLIENTS,
    seconds: float = 0.0,
    measures: Mapping[str, float] = NO_CLIENTS,
    num_models: int | None = None,
    share: float = 1.0,
    step: int | None = None,
) -> Record:
    """Make the record of a round, evaluated or not.

    `scores` are those on test examples, `validation` those on validation examples; `clusters` are
    None where they are not known; `share` is as in `Record.evaluated`.
    """
    return Record(
        round=number,
        step=step,
        **({} if scores is None else quality_of(scores, share)),
        **({} if validation is None else validation_of(validation)),
        **({} if clusters is None else clustering_of(clusters, groups)),
        num_models=num_models,
        bytes_down=spent.bytes_down,
        bytes_up=spent.bytes_up,
        gradient_evaluations=None if spent.cost is None else spent.cost.gradients,
        loss_evaluations=None if spent.cost is None else spent.cost.losses,
        seconds=seconds,
        client_seconds=spent.seconds,
        clustering_seconds=clustering_seconds,
        missing=tuple(sorted(missing)),
        refused=dict(sorted(refused.items())),
        bounded=dict(sorted(bounded.items())),
        measures={
            **{name: number_or_none(value) for name, value in measures.items()},
            **({} if validation is None else means(validation, VALIDATION)),
            **({} if scores is None else {**tuning_of(scores), **means(scores)}),
        },
    )


def last_evaluated(records: Sequence[Record]) -> Record:
    """Return the record of the last round that was evaluated, or of the last one if none was."""
    scored = [record for record in records if record.judged("loss") is not None]
    return (scored or records)[-1]


def ends_of_steps(records: Sequence[Record]) -> list[Record]:
    """Return the records of the last rounds of steps of time; none without time."""
    return [record for record in records if record.clusters is not None]


OF_CLIENTS = ("clusters", "client_accuracies", "client_losses")
"""Results of each client at the end of a step."""

MOVES = ("joined", "left", "moved")
"""Clients that came and left before a round, and those that changed their cluster in it."""

LISTS = (*OF_CLIENTS, *MOVES, "suspicion")
"""All lists that only some runs have."""

OF_STEPS = ("loss", "accuracy", "worst", "accuracy_std", "weighted_accuracy")
"""What a run with time is judged by: means over its steps; and the agreements."""


def over_steps(records: Sequence[Record], last: Record, metrics: Sequence[str] = ()) -> Record:
    """The record to judge a run by: the last one; with time, with means over the ends of steps.

    `metrics` are the names of those measures that are means over clients of the run's metrics.
    """
    ends = {record.step: record for record in records if record.judged("loss") is not None}
    if last.step is None or not ends:
        return last
    means, measures = dict[str, Any](), dict(last.measures)
    for name in (*OF_STEPS, "ari", "purity", "nmi"):
        values = [value for each in ends.values() if (value := getattr(each, name)) is not None]
        means[name] = float(np.mean(values)) if values else None
    for name in metrics:
        found = [each.measures.get(name) for each in ends.values()]
        known = [value for value in found if value is not None]
        measures[name] = float(np.mean(known)) if known else None
    return replace(last, **means, measures=measures)


def _with_evaluation(before: Mapping[int, str], more: Mapping[int, str]) -> dict[int, str]:
    """Return the reasons by client in a round, with those of its evaluation."""
    reasons = dict(before)
    for client, why in more.items():
        said = reasons.get(client, "")
        if why != said and not said.endswith(EVALUATION + why):
            reasons[client] = f"{said}; {EVALUATION}{why}".removeprefix("; ")
    return dict(sorted(reasons.items()))


def _said(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


RoundValue: TypeAlias = Callable[[Record], float | None]
"""A function that returns a number of a round; None if unknown."""


def judged_metric(name: str) -> RoundValue:
    """A metric by round: on validation examples if there are any, otherwise on test examples."""
    return lambda record: judged(record.measures, name)


NO_NUMBERS = ("round", "step", "missing", "refused", "measures")
"""Fields of a record that are no numbers of the round."""


def measures_of(record: Record) -> Iterator[tuple[str, float]]:
    """The known numbers of a round by name; absent clients are counted."""
    values: Mapping[str, Any] = {**vars(record), **record.measures}
    for name, value in values.items():
        if name not in NO_NUMBERS and isinstance(value, Real):
            yield name, float(value)
    yield "missing", float(len(record.missing))
    yield "refused", float(len(record.refused))
