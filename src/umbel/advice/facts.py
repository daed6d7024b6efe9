"""Basic facts about the examples, before any comparison or training."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.seeds import Stream, generator
from umbel.summary import in_short

MOST_EXAMPLES = 4_000
"""Largest number of examples of each split that are used to detect drift."""

FEWEST_EXAMPLES = 20
"""Fewest examples of each split for the detection of drift."""

DRIFT = 0.6
"""Examples are said to drift if a classifier tells the splits apart with a larger AUC than this."""

CHANCE = 4.0
"""The AUC must also exceed 0.5 by this many standard deviations of its value without drift.

The standard deviation is the one for independent scores. The trees' scores are not independent, so
that with few examples the AUC varies up to 1.5 times as much.
"""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Sizes, labels and drift."""

    num_clients: int
    train: tuple[int, int, int]  #: fewest, median and most training examples of a client
    validation: int  #: validation examples of all clients; 0: they were set apart for the race
    test: int  #: test examples of all clients
    num_classes: int | None  #: None: regression
    #: number of clients that lack some label in training; most labels that one client lacks
    missing: tuple[int, int]
    unseen: int  #: number of clients with test labels that their training examples lack
    drift: float  #: AUC of telling test inputs from training inputs: 0.5 is chance, 1 is perfect
    drift_by_chance: float = DRIFT  #: largest AUC that chance explains for this number of examples

    __repr__ = in_short

    @property
    def drifts(self) -> bool:
        """True if test inputs differ from training inputs strongly and beyond chance."""
        return self.drift > max(DRIFT, self.drift_by_chance)


def facts(federation: Federation, seed: int) -> Facts:
    """Count the examples, and compare the inputs of the splits."""
    sizes = federation.train.sizes
    kept = _labels(federation.train, federation.num_classes)
    later = _labels(federation.test, federation.num_classes)
    lacking = (~kept).sum(1)
    return Facts(
        num_clients=federation.num_clients,
        train=(int(sizes.min()), int(np.median(sizes)), int(sizes.max())),
        validation=0 if federation.validation is None else len(federation.validation.x),
        test=len(federation.test.x),
        num_classes=federation.num_classes,
        missing=(int((lacking > 0).sum()), int(lacking.max(initial=0))),
        unseen=int((later & ~kept).any(1).sum()),
        drift=_drift(federation, seed),
        drift_by_chance=_by_chance(*(_num_sampled(each) for each in _compared(federation))),
    )


def _labels(split: Split, classes: int | None) -> NDArray[np.bool_]:
    """(M, C) which labels each client has; no columns for regressions."""
    found = np.zeros((len(split.sizes), classes or 0), dtype=bool)
    for client in range(len(found)):
        if classes is not None:
            labels = np.unique(split.of(client)[1].numpy())
            found[client, labels[labels >= 0]] = True
    return found


def _compared(federation: Federation) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(M,) how many training and test inputs of each client are compared.

    Every client has the same part in both, so that clients which differ are not taken for drift.
    """
    train, test = federation.train.sizes, federation.test.sizes
    both = (train > 0) & (test > 0)
    times = max(1, int((train[both] // test[both]).min(initial=MOST_EXAMPLES)))
    return np.minimum(train, times * test), np.minimum(train, test)


def _drift(federation: Federation, seed: int) -> float:
    """AUC with which trees, trained on half of the inputs, tell the splits of the others apart."""
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import cross_val_predict

    counts = _compared(federation)
    if min(map(_num_sampled, counts)) < FEWEST_EXAMPLES:
        return 0.5
    rng = generator(seed, Stream.ADVICE, 2)
    splits = (federation.train, federation.test)
    parts = [_sampled(split, each, rng) for split, each in zip(splits, counts, strict=True)]
    truth = np.repeat([0, 1], [len(part) for part in parts])
    trees = ExtraTreesClassifier(50, min_samples_leaf=5, random_state=seed % 2**32)
    said = cross_val_predict(trees, np.concatenate(parts), truth, cv=2, method="predict_proba")
    return float(roc_auc_score(truth, said[:, 1]))


def _by_chance(first: int, second: int) -> float:
    """The largest area under the curve that chance gives this many examples without drift.

    Without drift, its variance is that of the statistic of Mann and Whitney (1947).
    """
    if not first * second:
        return 1.0
    return min(1.0, 0.5 + CHANCE * sqrt((first + second + 1) / (12 * first * second)))


def _num_sampled(counts: NDArray[np.int64]) -> int:
    return min(MOST_EXAMPLES, int(counts.sum()))


def _sampled(
    split: Split, counts: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Inputs drawn at random: so many of each client (M,), at most `MOST_EXAMPLES` of them all."""
    owners = np.repeat(np.arange(len(counts)), split.sizes)
    order = rng.permutation(len(split.x))
    mine = order[np.argsort(owners[order], kind="stable")]  # client by client, each in random order
    place = np.arange(len(mine)) - np.repeat(split.offsets[:-1], split.sizes)
    rows = rng.permutation(mine[place < np.repeat(counts, split.sizes)])[:MOST_EXAMPLES]
    flat = split.x[rows].reshape(len(rows), prod(split.x.shape[1:]))
    found: NDArray[np.float32] = flat.float().numpy()
    return found
