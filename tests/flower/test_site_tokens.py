"""Sites whose inputs are tokens: the server knows their type, as it builds and exports models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import umbel
from tests.algorithms.test_contract import LOCAL
from tests.flower.small import SMALL, site
from umbel.algorithms import FedAvg
from umbel.data.federation import Federation
from umbel.engines.privacy import Privacy
from umbel.flower import Settings, serve
from umbel.flower.client import Node
from umbel.flower.registry import Roll
from umbel.folder.how_to_continue import ROLL
from umbel.networks import CharLSTM

READING = replace(SMALL, algorithm=FedAvg(LOCAL), model=CharLSTM(4, 8), participation=1.0, rounds=1)


def reading(names: str, symbols: int = 6) -> Federation:
    """Clients with sequences of symbols, padded by -1; the last symbol occurs."""
    rng = np.random.default_rng(symbols)
    pairs = [(rng.integers(-1, symbols, (20, 5)), rng.integers(0, 6, (20, 5))) for _ in names]
    pairs[0][0][0] = symbols - 1
    return Federation.from_arrays(pairs, names=list(names), num_classes=6)


def finished(folder: Path) -> umbel.Result:
    """A run at three sites."""
    grid = site(folder, reading("ab"), reading("cd", 5), reading("e"), of=READING)
    settings = Settings(5, patience=5.0, runs_dir=str(folder / "runs"))
    return umbel.load(serve(grid, READING, settings).path)


@pytest.mark.thorough
def test_models_that_read_tokens_are_exported(tmp_path: Path) -> None:
    result = finished(tmp_path)
    fits = result.made_for[0]
    assert (fits.input_type, fits.largest) == ("int64", 4)
    for to in ("safetensors", "torch"):
        assert result.export(to).largest_difference < 1e-5
    roll = Roll.read(result.folder.file(ROLL))
    assert roll.largest_input == 4
    assert roll.federation().train.x.dtype == torch.int64


def test_under_privacy_only_the_type_of_inputs_is_told(tmp_path: Path) -> None:
    private = replace(READING, privacy=Privacy(clip=1.0))
    assert Node.of(READING, reading("ab"), tmp_path).site().largest_input == 5
    assert Node.of(private, reading("ab"), tmp_path).site().largest_input == 0
