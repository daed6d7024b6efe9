"""Numbers that describe an example by its input, by its label, and by its label given its input.

The mean of such numbers over a client's examples is the client's descriptor. If clients draw from
one distribution, their descriptors differ by chance alone.
"""

from __future__ import annotations

import numpy as np

from umbel.advice.examples import Floats, Pooled

COMPONENTS, IN_PRODUCTS = 30, 8
"""Number of principal components of the inputs, and how many of them enter pairwise products."""

WIDEST = 64
"""Largest number of values in a descriptor."""

ROWS_A_NUMBER = 25
"""Examples needed for each number in a descriptor, to estimate how much the number varies."""

ROUNDING = 1e-6
"""A component with a smaller share of what its inputs add up to has rounding errors of float32."""

CLIP = 3.0
"""Numbers are cut at this many standard deviations: means of long-tailed numbers tell little."""

TREES = 100


def descriptors(examples: Pooled, seed: int) -> dict[str, Floats]:
    """(N, D) numbers for each kind of difference; kinds that can't be examined are left out."""
    parts = _components(examples.inputs, seed)
    scaled = parts[:, :IN_PRODUCTS]
    kinds = {
        "inputs": np.hstack([parts, _products(scaled)]),
        "labels": _of_targets(examples),
    }
    left = _unexplained(examples, parts, seed)
    if left is not None:
        kinds["labels given inputs"] = _times(left, np.hstack([np.ones((len(left), 1)), scaled]))
    return {kind: _reduced(values, seed) for kind, values in kinds.items()}


def _components(inputs: Floats, seed: int) -> Floats:
    """The inputs' principal components, each with deviation 1, without those of rounding alone."""
    from sklearn.decomposition import PCA

    # By a power of two, which changes no digit: squares of huge inputs would overflow.
    inputs = np.ldexp(inputs, -np.frexp(np.abs(inputs).max(initial=0.0))[1])
    most = max(1, min(COMPONENTS, inputs.shape[1], len(inputs) // 20))
    if (inputs == inputs[:1]).all():
        return np.zeros((len(inputs), most))
    pca = PCA(most, random_state=seed % 2**32)
    with np.errstate(invalid="ignore"):  # shares of a variance that rounds to 0, which nobody needs
        parts = pca.fit_transform(inputs)
    spread = parts.std(0)
    # Linearly dependent inputs, such as the indicators of a category, have components without
    # variance, in which only rounding errors would be compared. Inputs may be of very different
    # units: what counts is a component's own part of each.
    size = np.sqrt(pca.components_**2 @ np.square(inputs).mean(0))
    varies = spread > ROUNDING * size
    if not varies.any():  # trees and products need a number, and one of rounding errors misleads
        return np.zeros((len(inputs), most))
    scaled: Floats = parts[:, varies] / spread[varies]
    return scaled


def _products(parts: Floats) -> Floats:
    first, second = np.triu_indices(parts.shape[1])
    products: Floats = parts[:, first] * parts[:, second]
    return products


def _of_targets(examples: Pooled) -> Floats:
    if examples.classes is not None:
        return examples.targets
    scaled = _standard(examples.targets)
    return np.hstack([scaled, scaled**2])


def _times(left: Floats, right: Floats) -> Floats:
    """(N, A * B): every number of one row times every number of the other."""
    product: Floats = (left[:, :, None] * right[:, None]).reshape(len(left), -1)
    return product


def _unexplained(examples: Pooled, parts: Floats, seed: int) -> Floats | None:
    """Targets minus their predictions by trees that were trained on the other half of the examples.

    None for sequences of labels.
    """
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    if examples.classes is not None and examples.labels is None:
        return None
    explained = np.zeros_like(examples.targets)
    for half in (0, 1):
        known, asked = examples.half != half, examples.half == half
        settings = {"n_estimators": TREES, "min_samples_leaf": 3, "random_state": seed % 2**32}
        if examples.labels is None:
            targets = examples.targets[known]
            targets = targets[:, 0] if targets.shape[1] == 1 else targets
            trees = ExtraTreesRegressor(**settings).fit(parts[known], targets)
            explained[asked] = trees.predict(parts[asked]).reshape(int(asked.sum()), -1)
        else:
            trees = ExtraTreesClassifier(**settings).fit(parts[known], examples.labels[known])
            explained[np.ix_(asked, trees.classes_)] = trees.predict_proba(parts[asked])
    return examples.targets - explained


def _reduced(values: Floats, seed: int) -> Floats:
    """Principal components of the standardised numbers, as many as the examples support."""
    from sklearn.decomposition import PCA

    scaled = _standard(values)
    most = min(WIDEST, max(IN_PRODUCTS, len(values) // ROWS_A_NUMBER))
    if scaled.shape[1] <= most:
        return scaled
    found: Floats = PCA(most, random_state=seed % 2**32).fit_transform(scaled)
    return found


def _standard(values: Floats) -> Floats:
    """Standardise numbers to mean 0 and deviation 1; clip outliers and drop constant columns."""
    centred = values - values.mean(0)
    spread = centred.std(0)
    varies = spread > 1e-9
    scaled: Floats = np.clip(centred[:, varies] / spread[varies], -CLIP, CLIP)
    return scaled
