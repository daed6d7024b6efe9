"""bfloat16 is taken where it is faster, and refused where the processor lacks it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import umbel
from tests.federations import blobs, mlp
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.engines import EngineSettings, Sequential, Vectorised, make_engine, precision
from umbel.engines.precision import usable_precision
from umbel.networks import MLP

CPU, BF16 = torch.device("cpu"), EngineSettings(device="cpu", precision="bf16")


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have a processor with these units for bfloat16."""
    runs = pytest.importorskip("umbel.folder.sessions_file")

    def have(*names: str) -> None:
        for module in (precision, runs):
            monkeypatch.setattr(module, "bf16_units", lambda: list(names))

    return have


def test_a_processor_without_such_products_is_refused_before_the_run(
    units: Callable[..., None], tmp_path: Path
) -> None:
    units()
    said = r"engine\.precision: this processor has no products of bfloat16 numbers \(avx512_bf16 .*"
    with pytest.raises(UsageError, match=rf'{said}, and would be slower in bf16: write "full"'):
        make_engine(mlp(), blobs(), BF16)
    run = umbel.Run(umbel.FedAvg(), blobs(), mlp(), engine=BF16)
    with pytest.raises(UsageError, match=said):
        list(run.rounds(1, folder=tmp_path / "run"))
    assert usable_precision(mlp(), CPU, "full") == "full"


def test_chains_of_linear_layers_have_the_dense_kernel(units: Callable[..., None]) -> None:
    units("avx512_bf16")
    batched = make_engine(mlp(), blobs(), BF16)
    alone = make_engine(mlp(), blobs([9]), BF16)
    assert isinstance(batched, Vectorised)
    assert isinstance(alone, Sequential)
    for engine in (batched, alone):
        assert (engine.net.way.kernel, engine.net.way.precision) == ("dense", "bf16")


def test_a_run_in_bfloat16_says_what_the_processor_has(
    units: Callable[..., None], tmp_path: Path
) -> None:
    units("avx512_bf16")
    for engine, said in ((BF16, ["avx512_bf16"]), (EngineSettings(device="cpu"), None)):
        folder = tmp_path / engine.precision
        run = umbel.Run(umbel.FedAvg(), blobs(), mlp(), engine=engine)
        list(run.rounds(1, folder=folder))
        (session,) = json.loads((folder / "environment.json").read_text())
        assert session.get("bf16_units") == said


def test_a_run_in_bfloat16_is_resumed_bit_for_bit(
    units: Callable[..., None], tmp_path: Path
) -> None:
    units("avx512_bf16")
    build = partial(MLP(hidden=(200,)).build, (784,), 10)
    local = umbel.LocalTraining(steps=1, batch_size=64)

    def run() -> umbel.Run:
        return umbel.Run(umbel.FedAvg(local=local), images(), Net(build), engine=BF16)

    *_, (whole, _) = run().rounds(3, folder=tmp_path / "whole")
    next(run().rounds(3, folder=tmp_path / "resumed"))
    *_, (resumed, _) = run().rounds(3, folder=tmp_path / "resumed")
    assert torch.equal(whole.models, resumed.models)
    *_, (full, _) = umbel.Run(umbel.FedAvg(local=local), images(), Net(build)).rounds(3)
    assert 0 < float((whole.models - full.models).norm() / full.models.norm()) < 0.1


def images() -> umbel.Federation:
    """Clients with enough images for steps on mini-batches of 64."""
    rng = np.random.default_rng(0)
    shards = [(rng.random((80, 784)), np.arange(80) % 10) for _ in range(3)]
    return umbel.Federation.from_arrays(shards)
