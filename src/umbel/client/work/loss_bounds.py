"""Bounds on the losses that clients send, so that badly fitting models can be compared, too."""

from __future__ import annotations

import torch
from torch import Tensor

from umbel.client.batches import wide
from umbel.client.work.base import Promise

MAX_LOSS = 1e12
"""Largest loss that is sent or recorded: targets may be large, unlike averaged values."""


def clipped(losses: Tensor) -> Tensor:
    """Losses, with `MAX_LOSS` for values that are larger or not finite.

    The result has at least single precision: half precision has no number this large.
    """
    exact = losses.to(wide(losses.dtype))
    return exact.clamp(-MAX_LOSS, MAX_LOSS).where(exact.isfinite(), MAX_LOSS)


def bounded(losses: Tensor) -> Tensor:
    """Losses (..., K) of K models on a client, clipped; NaN if no model fits at all.

    Other clients' models may fit a client arbitrarily badly, which is not an error of the client. A
    client that no model fits can't compare models.
    """
    within = losses.isfinite() & (losses < MAX_LOSS)
    return clipped(losses).where(within.any(-1, keepdim=True), torch.nan)


def promised(num_models: int) -> Promise:
    """The form of bounded losses, or scores."""
    return Promise((num_models,), torch.float64, -MAX_LOSS, MAX_LOSS)
