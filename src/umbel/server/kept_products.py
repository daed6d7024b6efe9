"""Inner products of clients' features, kept between rounds where that is cheaper than new ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from umbel.server.clustering import LARGEST_GRAM, inner_products

KEPT_SHARE = 8
"""Inner products are kept where features have this many times as many values as there are clients.

They take a quarter of the features' memory at most, and save a second pass over them.
"""

KEPT_FROM = 2**20
"""Keeping products saves more than it costs from this many feature values for a model on."""


def products_of(features: Sequence[Tensor]) -> Tensor:
    """The inner products that a state keeps beside these features, K of (M, J)."""
    clients, size = features[0].shape
    products = no_products(len(features), clients, size)
    for k in range(len(features) if products.numel() else 0):
        products[k] = inner_products(features[k])
    return products


def no_products(models: int, clients: int, size: int) -> Tensor:
    """Those of features that are all zero: (K, M, M), or (K, 0, 0) where none are kept."""
    large = clients * size >= KEPT_FROM and clients * KEPT_SHARE <= size
    kept = clients if large and clients <= LARGEST_GRAM else 0
    return torch.zeros(models, kept, kept, dtype=torch.double)


def products_after(products: Tensor, block: Tensor, turn: int) -> Tensor:
    """The products, if any are kept, after the features (M, J) for one model have changed."""
    if not products.numel():
        return products
    products = products.clone()
    products[turn] = inner_products(block)
    return products
