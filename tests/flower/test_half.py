"""Models in bfloat16 are trained over Flower as those in single precision are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.algorithms.test_contract import LOCAL
from tests.flower.small import SMALL, engine_of, grid_of
from umbel.algorithms import FedAvg, PFedMe
from umbel.algorithms.base import Algorithm, State
from umbel.data.sources import Sources
from umbel.engines.privacy import Privacy
from umbel.networks import Model


@dataclass(frozen=True)
class Halved(Model):
    """A linear layer in bfloat16."""

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        inputs = int(torch.Size(input_shape).numel())
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, num_outputs)).bfloat16()


@pytest.mark.parametrize(
    ("algorithm", "privacy"),
    [(PFedMe(local=LOCAL), Privacy()), (FedAvg(LOCAL), Privacy(clip=1.0, noise_multiplier=0.01))],
    ids=["clients keep models of their own", "updates leave with noise"],
)
def test_nodes_answer_every_request(
    algorithm: Algorithm[State], privacy: Privacy, tmp_path: Path
) -> None:
    halved = replace(
        SMALL, model=Halved(), algorithm=algorithm, participation=1.0, rounds=2, privacy=privacy
    )
    run = halved.open(Sources.default())
    run = replace(run, engine=engine_of(grid_of(halved, tmp_path)), privacy=Privacy())
    for state, record in run.rounds(2):
        assert state.models.dtype == torch.bfloat16
        assert not record.refused
        assert not record.missing
