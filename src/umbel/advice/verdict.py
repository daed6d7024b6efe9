"""The answer: one model, a model for each cluster, or each client alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

import numpy as np

from umbel.advice.examples import Ints
from umbel.advice.gains import LossGain, ahead, lead, one_beside
from umbel.advice.structure import Structure
from umbel.advice.trial import Standing
from umbel.summary import in_short

Answer = Literal["one model", "clusters", "train alone", "too few examples to tell"]

ALIKE = 0.005
"""Losses that differ by less than this share count as equal, and the simpler way is chosen.

Shares are relative to the magnitude of losses, as an objective's losses may be negative.
"""

WIDE = 0.1
"""A large gain, as a share of the loss in the first evaluation.

If a gain of this share can't be ruled out, there are too few examples to tell.
"""

SIMPLEST = {("one", False): 0, ("clusters", False): 1, ("one", True): 2, ("clusters", True): 3}
"""Ways to serve clients, the simplest first; training alone, which learns from nobody, is last."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer, with the evidence for it."""

    answer: Answer
    chosen: Standing  #: the way that is advised
    num_clusters: int  #: clusters that clients form, 1 where there are none
    clusters: Ints  #: (M,)
    one: Standing  #: one model for all
    beside: Standing  #: one model for all; if clients fine-tune, trained for as many further epochs
    alone: Standing  #: training alone
    over_one: LossGain  #: what clients gain over one model for all
    over_alone: LossGain  #: what clients gain over training alone

    __repr__ = in_short

    @property
    def tuned(self) -> bool:
        """True if clients should fine-tune the model that they get."""
        return self.chosen.contender.tuned


def decide(standings: Sequence[Standing], structure: Structure) -> Verdict:
    """Choose among the contenders; the first must be one model for all."""
    one = standings[0]
    alone = next(each for each in standings if each.contender.kind == "local")
    clustered = preferred_clusters(standings, structure)
    field = [each for each in standings if in_field(each, clustered)]
    better = [each for each in field if each is one or is_worth_it(each, one)]
    lowest = min(better, key=lambda each: each.mean)
    alike = [each for each in better if each.mean <= lowest.mean + ALIKE * abs(lowest.mean)]
    efforts = [SIMPLEST.get((s.contender.kind, s.contender.tuned), len(SIMPLEST)) for s in alike]
    chosen = alike[efforts.index(min(efforts))]
    shown = chosen if chosen.contender.kind == "clusters" else clustered
    grouped = chosen.contender.kind == "clusters" or (
        chosen is not one and clustered is not None and ahead(clustered, one)
    )
    clusters = _numbered(shown.clusters if grouped and shown is not None else one.clusters)
    return Verdict(
        answer=_answer(chosen, one, field),
        chosen=chosen,
        num_clusters=int(clusters.max()) + 1,
        clusters=clusters,
        one=one,
        beside=one_beside(chosen, one),
        alone=alone,
        over_one=lead(chosen, one_beside(chosen, one)),
        over_alone=lead(chosen, alone),
    )


def is_worth_it(standing: Standing, one: Standing) -> bool:
    """Return True if a way surely beats one model, and tuning longer training, too.

    Fine-tuning one model must also beat clusters that are trained longer, if these surely beat one
    model.
    """
    rivals = [each for each in standing.rivals if _counts(each, standing)]
    adds = all(below(standing, each) for each in rivals)
    return adds and ahead(standing, one_beside(standing, one))


def below(standing: Standing, rival: Standing) -> bool:
    """Return True if its loss is lower by more than counts as equal."""
    return standing.mean < rival.mean - ALIKE * abs(rival.mean)


def _counts(rival: Standing, standing: Standing) -> bool:
    return rival.contender.kind in ("one", standing.contender.kind) or ahead(
        rival, standing.rivals[0]
    )


def _answer(chosen: Standing, one: Standing, field: Sequence[Standing]) -> Answer:
    if chosen.contender.kind == "clusters":
        return "clusters"
    if chosen.contender.kind == "local":
        return "train alone"
    if chosen is one and not _can_tell(one, field):
        return "too few examples to tell"
    return "one model"


def _can_tell(one: Standing, field: Sequence[Standing]) -> bool:
    """Return True if no other way can have a large gain over one model.

    Where no client has an example to judge by, the losses of the first evaluation are infinite.
    """
    if not isfinite(one.course[0][1]):
        return False
    gains = [lead(each, one_beside(each, one)) for each in field if each is not one]
    return all(each.high <= WIDE * abs(one.course[0][1]) for each in gains)


def preferred_clusters(standings: Sequence[Standing], structure: Structure) -> Standing | None:
    """The clusters that can be the answer; None: there are none.

    It is the clustering that the descriptors show. If others surely beat it, it is the one of these
    with the lowest loss; if it does not surely beat one model, the one with the lowest loss of all.
    """
    clustered = [
        s
        for s in standings
        if s.contender.kind == "clusters" and not s.contender.tuned and s.divided
    ]
    if not clustered:
        return None
    wanted = [s for s in clustered if s.contender.num_clusters == structure.num_groups]
    first = (wanted or clustered)[0]
    beats_one = ahead(first, standings[0])
    better = [each for each in clustered if not beats_one or ahead(each, first)]
    return min(better, key=lambda each: each.mean) if better else first


def in_field(standing: Standing, clustered: Standing | None) -> bool:
    """Return True if a way can be the answer; of all clusterings only one can."""
    if not standing.course:
        return False
    if standing.contender.kind != "clusters":
        return True
    return clustered is not None and clustered.contender in (
        standing.contender,
        standing.contender.base,
    )


def _numbered(clusters: Ints) -> Ints:
    """Return the clusters without gaps in their numbers, which empty ones leave."""
    found: Ints = np.unique(clusters, return_inverse=True)[1].astype(np.int64)
    return found
