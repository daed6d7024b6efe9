"""What the examples are, before anything is compared or trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.seeds import Stream, generator
from umbel.summary import in_short

MOST = 4_000
"""Examples of each split that drift is looked for in."""

DRIFT = 0.6
"""Area under the curve of telling the splits apart, above which examples are said to drift."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Sizes, labels and drift."""

    num_clients: int
    train: tuple[int, int, int]  #: fewest, median and most training examples of a client
    validation: int  #: validation examples of all clients; 0: they were set apart for the race
    test: int  #: test examples of all clients
    num_classes: int | None  #: None: regression
    missing: tuple[int, int]  #: clients that lack some label in training, most that one lacks
    unseen: int  #: clients with labels in the test that their training examples lack
    drift: float  #: how well inputs tell test from training: 0.5 not at all, 1 surely

    __repr__ = in_short


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
    )


def _labels(split: Split, classes: int | None) -> NDArray[np.bool_]:
    """(M, C) which labels each client has; of regressions none."""
    found = np.zeros((len(split.sizes), classes or 0), dtype=bool)
    for client in range(len(found)):
        if classes is not None:
            labels = np.unique(split.of(client)[1].numpy())
            found[client, labels[labels >= 0]] = True
    return found


def _drift(federation: Federation, seed: int) -> float:
    """How well trees that have seen half of the inputs tell the splits of the others apart."""
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import cross_val_predict

    rng = generator(seed, Stream.ADVICE, 2)
    parts = [_sampled(split, rng) for split in (federation.train, federation.test)]
    if min(map(len, parts)) < 20:
        return 0.5
    truth = np.repeat([0, 1], [len(part) for part in parts])
    trees = ExtraTreesClassifier(50, min_samples_leaf=5, random_state=seed % 2**32)
    said = cross_val_predict(trees, np.concatenate(parts), truth, cv=2, method="predict_proba")
    return float(roc_auc_score(truth, said[:, 1]))


def _sampled(split: Split, rng: np.random.Generator) -> NDArray[np.float32]:
    rows = rng.permutation(len(split.x))[:MOST]
    found: NDArray[np.float32] = split.x[rows].reshape(len(rows), -1).numpy().astype(np.float32)
    return found
