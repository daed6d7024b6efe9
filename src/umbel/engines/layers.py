"""Kinds of layers that decide how a network is best computed."""

from __future__ import annotations

from torch import nn

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

RECURRENT = (nn.RNN, nn.LSTM, nn.GRU)
"""Layers for which `torch.func.vmap` has no rule, on any device.

Attention and layer normalisation have such a rule.
"""
