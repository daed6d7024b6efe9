"""Features that clients are clustered by: values of gradients, their means and inner products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from umbel.checks import check, check_memory
from umbel.client.layout import Layout
from umbel.flow import Rows
from umbel.server.ask import Features
from umbel.server.clustering import LARGEST_GRAM, distances, inner_products
from umbel.server.repeated_rows import with_rows

KEPT_SHARE = 8
"""Inner products are kept if a feature has at least this many values for each client.

They take at most a quarter of the features' memory, and save a second pass over the features.
"""

KEPT_FROM = 2**20
"""Keeping products pays off from this number of feature values of a model."""


def allowed(layout: Layout, parameters: tuple[str, ...]) -> Tensor:
    """(J,) the trained values that features can consist of: those of `parameters`, or all.

    Raises `UsageError` if no parameter matches the patterns.
    """
    values = torch.arange(layout.num_weights)
    if parameters:
        values = values[layout.mask(parameters, "parameters")[: layout.num_weights]]
    check(len(values) > 0, "parameters", parameters, "patterns for trained parameters")
    return values


def drawn(values: Tensor, compression: float, rng: np.random.Generator) -> Tensor:
    """A random sample of these values, one in `compression` but at least one, in their order."""
    kept = max(1, round(len(values) / compression))
    return values[np.sort(rng.choice(len(values), kept, replace=False))]


def no_features(models: Tensor, clients: int, size: int) -> tuple[Tensor, ...]:
    """Features that are all zero, for models (K, P): K of (M, J).

    Raises `UsageError` if they do not fit in memory.
    """
    said = f"features of {clients:,} clients, {size:,} values for each of {len(models):,} models"
    needed = len(models) * clients * size * models.itemsize
    check_memory(needed, f"{said} (raise compression, or set parameters)")
    return tuple(models.new_zeros(clients, size) for _ in models)


def side_by_side(features: Sequence[Tensor], complete: Tensor) -> Tensor:
    """Features (M, K J) of K times (M, J), NaN for a client that is not `complete` (M,).

    Raises `UsageError` if they do not fit in memory a second time.
    """
    said = f"features of {len(complete):,} clients, side by side"
    check_memory(sum(block.nbytes for block in features), said)
    joined = torch.cat(tuple(features), dim=1)
    joined[~complete] = torch.nan
    return joined


def moved(block: Tensor, answer: Features, rate: Tensor) -> Tensor:
    """Features (M, J) after each client's row has moved to its answer (N, J) by a rate (N,)."""
    # In most rounds all clients answer: the table is then not indexed, which would copy it.
    old = Rows(block, answer.clients).take(torch.arange(len(answer.clients)))
    # g <- (1 - rate) g + rate answer, which for rate 1/n is the running mean of n answers.
    near = torch.lerp(old, answer.feature, rate[:, None])
    return with_rows(block, answer.clients, near)


def to_means(mine: Tensor, theirs: Tensor, labels: Tensor, count: int) -> Tensor:
    """Return distances (N, K) of features (N, J) to the mean of features (L, J) for each label.

    Distances to a cluster without clients are infinite.
    """
    centres = torch.stack([theirs[labels == k].mean(0) for k in range(count)])
    return distances(mine, centres, "l2").nan_to_num(torch.inf)


def no_products(models: int, clients: int, size: int) -> Tensor:
    """Inner products of features that are all zero: (K, M, M), or (K, 0, 0) if none are kept."""
    # Above LARGEST_GRAM clients, the SVD does not use inner products.
    large = clients * size >= KEPT_FROM and clients * KEPT_SHARE <= size
    kept = clients if large and clients <= LARGEST_GRAM else 0
    return torch.zeros(models, kept, kept, dtype=torch.double)


def products_after(products: Tensor, block: Tensor, turn: int) -> Tensor:
    """Return the kept products, if any, after the features (M, J) for one model changed."""
    if not products.numel():
        return products
    products = products.clone()
    products[turn] = inner_products(block)
    return products
