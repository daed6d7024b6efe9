"""How clusters followed clients whose data changed: what happened from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

import numpy as np
from numpy.typing import NDArray

from umbel.run.records import Record, ends_of_steps
from umbel.summary import in_short


@dataclass(frozen=True)
class StepChanges:
    """The changes of clusters since the step before, whichever numbers they have.

    Clusters of two steps are matched so that most clients stay.
    """

    step: int  #: step of time, counted from 0
    moves: int = 0  #: clients that are in another cluster
    splits: int = 0  #: new clusters whose clients were in others
    births: int = 0  #: new clusters of new clients alone
    merges: int = 0  #: clusters that are gone, but not all their clients
    deaths: int = 0  #: clusters that are gone with their clients


@dataclass(frozen=True)
class Drift:
    """How the clusters of a run followed the planted concepts; None where these are not known.

    A client is *well placed* if most clients of its cluster have its concept. A drift is found in
    the first step in which the client is well placed with its new concept, before it changes again.
    """

    changes: tuple[StepChanges, ...]  #: of each step but the first
    drifts: int | None = None  #: changes of a client's concept
    found: int | None = None  #: those that were found
    delay: float | None = None  #: mean number of steps until a drift was found, 0 for at once
    #: clients that were well placed, kept their concept, and were then not well placed
    false_alarms: int | None = None
    #: (S, M) cluster of each client at the end of each step, -1 for those without examples; one
    #: keeps its number as long as it is matched
    clusters: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 0), np.int64))
    #: (S, M) planted concept of each client in each step; None: not known
    concepts: NDArray[np.int64] | None = None

    __repr__ = in_short


def drift_of(records: Sequence[Record], concepts: NDArray[np.int64] | None = None) -> Drift:
    """Compare the clusters of a run with time from step to step, and with concepts (M, T).

    >>> from umbel import Record
    >>> steps = [Record(0, step=0, clusters=(0, 0, 0)), Record(1, step=1, clusters=(0, 1, 1))]
    >>> drift_of(steps).changes[0].splits
    1
    """
    ends = ends_of_steps(records)
    if not ends:  # without time; SciPy is not imported in vain
        return Drift(())
    # The roll of a run over Flower grows, so that later steps have more clients.
    rows = zip_longest(*(record.clusters or () for record in ends), fillvalue=-1)
    clusters = np.array([*rows], dtype=np.int64).T
    steps = [record.step or 0 for record in ends]
    tracks = _tracks(clusters)
    pairs = zip(steps[1:], tracks[:-1], tracks[1:], strict=True)
    changes = tuple(_changes(step, *pair) for step, *pair in pairs)
    if concepts is None:
        return Drift(changes, clusters=tracks)
    planted = concepts.T[steps]  # (S, M)
    there, well = clusters >= 0, _well_placed(clusters, planted)
    changed = (planted[1:] != planted[:-1]) & there[1:] & there[:-1]
    delays = []
    for before, client in np.argwhere(changed):
        row = before + 1
        again = np.flatnonzero(planted[row:, client] != planted[row, client])
        until = row + again[0] if len(again) else len(planted)
        right = np.flatnonzero(well[row:until, client])
        delays += right[:1].tolist()
    alarms = well[:-1] & ~well[1:] & ~changed & there[1:]
    return Drift(
        changes,
        drifts=int(changed.sum()),
        found=len(delays),
        delay=float(np.mean(delays)) if delays else None,
        false_alarms=int(alarms.sum()),
        clusters=tracks,
        concepts=planted,
    )


def _tracks(clusters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Renumber the clusters of each step: those that are matched to one before keep its number."""
    from scipy.optimize import linear_sum_assignment

    tracks, free = clusters.copy(), clusters[:1].max(initial=-1) + 1
    for before, now in pairwise(tracks):
        both, number = (before >= 0) & (now >= 0), dict[int, int]()
        # overlap (K, L): clients of the new cluster k that were in the old one l
        overlap = np.zeros((now.max(initial=-1) + 1, free), dtype=np.int64)
        np.add.at(overlap, (now[both], before[both]), 1)
        for new, old in zip(*linear_sum_assignment(overlap, maximize=True), strict=True):
            if overlap[new, old]:
                number[int(new)] = int(old)
        for new in np.unique(now[now >= 0]).tolist():
            if new not in number:
                number[new], free = free, free + 1
        now[now >= 0] = [number[new] for new in now[now >= 0].tolist()]
    return tracks


def _changes(step: int, before: NDArray[np.int64], after: NDArray[np.int64]) -> StepChanges:
    both = (before >= 0) & (after >= 0)
    begun = np.setdiff1d(after[after >= 0], before)
    gone = np.setdiff1d(before[before >= 0], after)
    splits = len(np.intersect1d(begun, after[both]))
    merges = len(np.intersect1d(gone, before[both]))
    return StepChanges(
        step,
        moves=int((both & (before != after)).sum()),
        splits=splits,
        births=len(begun) - splits,
        merges=merges,
        deaths=len(gone) - merges,
    )


def _well_placed(clusters: NDArray[np.int64], planted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(S, M) whether more than half of the clients of a client's cluster have its concept."""
    well = np.zeros(clusters.shape, dtype=bool)
    for row, (labels, concepts) in enumerate(zip(clusters, planted, strict=True)):
        for cluster in np.unique(labels[labels >= 0]):
            mine = labels == cluster
            alike = (concepts[mine][:, None] == concepts[mine]).sum(axis=1)
            well[row, mine] = 2 * alike > mine.sum()
    return well
