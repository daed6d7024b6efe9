"""Losses as clients send them: bounded, so that a model that fits badly is one that is compared."""

from __future__ import annotations

import torch
from torch import Tensor

from umbel.client.work.base import Promise

MAX_LOSS = 1e12
"""Largest loss that is sent or recorded: targets may be large, unlike what is averaged."""


def clipped(losses: Tensor) -> Tensor:
    """Losses in which all that are larger than `MAX_LOSS`, or not finite, count as that.

    They have single precision at least: half precision has no number as large.
    """
    wide = losses.to(torch.promote_types(losses.dtype, torch.float32))
    return wide.clamp(-MAX_LOSS, MAX_LOSS).where(wide.isfinite(), MAX_LOSS)


def bounded(losses: Tensor) -> Tensor:
    """Losses (K,) of K models on one client, clipped; NaN where no model fits to any degree.

    Models of others may fit a client arbitrarily badly, which is no fault of the client. One that
    nothing fits can't judge at all.
    """
    within = losses.isfinite() & (losses < MAX_LOSS)
    return clipped(losses).where(within.any(), torch.nan)


def promised(num_models: int) -> Promise:
    """The form of such losses, or scores."""
    return Promise((num_models,), torch.float64, -MAX_LOSS, MAX_LOSS)
