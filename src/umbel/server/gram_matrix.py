"""Inner products of clients' features, kept between rounds if that is cheaper."""

from __future__ import annotations

import torch
from torch import Tensor

from umbel.server.clustering import LARGEST_GRAM, inner_products

KEPT_SHARE = 8
"""Inner products are kept if a feature has at least this many values for each client.

They take at most a quarter of the features' memory, and save a second pass over the features.
"""

KEPT_FROM = 2**20
"""Keeping products pays off from this number of feature values of a model."""


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
