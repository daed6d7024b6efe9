"""Whether a network processes a single example as it does several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.client.constants import twin
from umbel.client.kernels.general import one_tensor
from umbel.client.net import Net
from umbel.client.seeding import drawing_from
from umbel.preflight.torch_errors import ALONE, FAILURES, in_a_line

KEEP_THE_BATCH = "let forward keep the first dimension, as x.squeeze(-1) does, unlike x.squeeze()"


@dataclass(frozen=True)
class Trouble:
    """Why a network can't process a single example, as parts of a message."""

    why: str
    otherwise: str  # what to change in the network


def trained_alone(net: Net, two: Tensor) -> Trouble | None:
    """The trouble in training, found with two inputs (2, ...) and the first of them; or None."""

    def passed(x: Tensor) -> Tensor:
        module = twin(net.modules.training, net.layout)
        return one_tensor(module(x.detach().clone()))

    normalised = Trouble("batch normalisation needs two in a mini-batch", "use group normalisation")
    return _trouble(passed, two, normalised)


def evaluated_alone(net: Net, two: Tensor) -> Trouble | None:
    """The trouble in an evaluation, found in the same way."""
    normalised = Trouble(
        "batch normalisation without running statistics needs two",
        "set track_running_stats=True, or use group normalisation",
    )
    return _trouble(lambda x: net.outputs(net.new(seed=0), x), two, normalised)


def _trouble(
    passed: Callable[[Tensor], Tensor], two: Tensor, normalised: Trouble
) -> Trouble | None:
    """Compare the outputs for one example with those for two, which `check_fit` has looked at."""
    with torch.no_grad(), drawing_from(seed=0):
        expected = (1, *passed(two).shape[1:])
        try:
            found = tuple(passed(two[:1]).shape)
        except FAILURES as error:
            if ALONE in str(error):
                return normalised
            return Trouble(f"the network fails ({in_a_line(error, named=True)})", KEEP_THE_BATCH)
    if found == expected:
        return None
    return Trouble(f"the network's outputs then have shape {found}, not {expected}", KEEP_THE_BATCH)
