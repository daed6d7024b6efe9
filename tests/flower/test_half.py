"""Models in bfloat16 are trained over Flower as those in single precision are."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.algorithms.test_contract import LOCAL
from tests.flower.small import SMALL, engine_of, grid_of
from umbel.algorithms import FedAvg, PFedMe
from umbel.algorithms.base import Algorithm, State
from umbel.client.constants import bits
from umbel.data.sources import Sources
from umbel.engines.privacy import Privacy
from umbel.flower.memory import memorise, recall, row_digest
from umbel.networks import Model

HALF = torch.tensor([1.0, -2.5, 3.0]).bfloat16()


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


def test_a_node_finds_a_row_again_by_its_digest(tmp_path: Path) -> None:
    memorise(tmp_path / "kept", {"a": HALF, "b": HALF * 2})
    assert list(recall(tmp_path / "kept", ["a"])["a"]) == [row_digest(HALF)]
    assert torch.equal(recall(tmp_path / "kept", ["b"])["b"][row_digest(HALF * 2)], HALF * 2)


@pytest.mark.parametrize("row", [torch.arange(6.0).reshape(2, 3), torch.tensor(3), torch.empty(0)])
def test_digests_of_other_types_are_those_of_earlier_versions(row: Tensor) -> None:
    said = f"{row.dtype} {tuple(row.shape)} ".encode() + row.numpy().tobytes()
    assert row_digest(row) == hashlib.sha256(said).hexdigest()


def test_a_single_value_out_of_a_row_of_others_has_bits_too() -> None:
    assert torch.equal(bits(torch.arange(4.0)[::2][:1]), bits(torch.zeros(1)))
