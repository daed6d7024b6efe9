"""Sites whose inputs are tokens: the server knows their type, as it builds and exports models."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import umbel
from tests.algorithms.test_contract import LOCAL
from tests.flower.attacks import NO_LARGEST_INPUT, Attack
from tests.flower.small import SMALL, site
from tests.flower.test_hostile import hostile
from umbel.algorithms import FedAvg
from umbel.data.federation import Federation
from umbel.engines.privacy import Privacy
from umbel.flower import Settings, serve
from umbel.flower.client import Node
from umbel.flower.exchange import HELLO
from umbel.flower.registry import Roll
from umbel.folder.flower_files import ROLL
from umbel.networks import CharLSTM

READING = replace(SMALL, algorithm=FedAvg(LOCAL), model=CharLSTM(4, 8), participation=1.0, rounds=1)


def reading(names: str, symbols: int = 6) -> Federation:
    """Clients with sequences of symbols, padded by -1; the last symbol occurs."""
    rng = np.random.default_rng(symbols)
    pairs = [(rng.integers(-1, symbols, (20, 5)), rng.integers(0, 6, (20, 5))) for _ in names]
    pairs[0][0][0] = symbols - 1
    return Federation.from_arrays(pairs, names=list(names), num_classes=6)


def finished(folder: Path, attacks: dict[int, Attack] | None = None) -> umbel.Result:
    """A run at three sites, of which some say something else than they should."""
    grid = site(folder, reading("ab"), reading("cd", 5), reading("e"), of=READING)
    changed = {n: hostile(grid.apps[n], HELLO, attack) for n, attack in (attacks or {}).items()}
    grid.apps = {**grid.apps, **changed}
    settings = Settings(5, patience=5.0, runs_dir=str(folder / "runs"))
    return umbel.load(serve(grid, READING, settings).path)


def test_models_that_read_tokens_are_exported(tmp_path: Path) -> None:
    result = finished(tmp_path)
    fits = result.made_for[0]
    assert (fits.input_type, fits.largest) == ("int64", 4)
    for to in ("safetensors", "torch"):
        assert result.export(to).largest_difference < 1e-5
    roll = Roll.read(result.folder.file(ROLL))
    assert roll.largest_input == 4
    assert roll.federation().train.x.dtype == torch.int64


def test_a_model_whose_sites_do_not_tell_the_type_of_inputs_is_not_compared(tmp_path: Path) -> None:
    result = finished(tmp_path, dict.fromkeys((1, 2, 3), NO_LARGEST_INPUT))
    assert "largest_input" not in result.folder.file(ROLL).read_text()
    assert Roll.read(result.folder.file(ROLL)).federation().train.x.dtype == torch.float32
    exported = result.export("safetensors")  # written, with nothing to compare it by
    assert exported.num_examples == 0
    assert math.isnan(exported.largest_difference)


def test_under_privacy_only_the_type_of_inputs_is_told(tmp_path: Path) -> None:
    private = replace(READING, privacy=Privacy(clip=1.0))
    assert Node.of(READING, reading("ab"), tmp_path).site().largest_input == 5
    assert Node.of(private, reading("ab"), tmp_path).site().largest_input == 0
