"""bfloat16 is taken where it is faster, and refused where the processor lacks it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.engines.test_equality import WORKS, request
from tests.federations import blobs, mlp
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.engines import EngineSettings, Sequential, Vectorised, make_engine, precision
from umbel.engines.precision import usable_precision
from umbel.engines.processes.workers import Workers
from umbel.networks import CNN, MLP, LeNet

CPU, BF16 = torch.device("cpu"), EngineSettings(device="cpu", precision="bf16")


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have a processor with these units for bfloat16."""
    runs = pytest.importorskip("umbel.folder.sessions_file")

    def have(*names: str) -> None:
        for module in (precision, runs):
            monkeypatch.setattr(module, "bf16_units", lambda: list(names))

    return have


def lstm() -> nn.Module:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(6, 128), nn.Linear(128, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.lstm(x)[0])
            return out

    return Recurrent()


def wide(units: int) -> nn.Module:
    return nn.Sequential(nn.Linear(784, units), nn.LayerNorm(units), nn.Linear(units, 10))


def frozen_body() -> nn.Module:
    body = nn.Sequential(nn.Conv2d(1, 64, 5), nn.Conv2d(64, 64, 5)).requires_grad_(False)
    return nn.Sequential(body, nn.Flatten(), nn.Linear(64 * 20 * 20, 1))


def attention() -> nn.Module:
    return nn.TransformerEncoderLayer(64, 4)


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


@pytest.mark.parametrize("kernel", ["general", "in-place"])
def test_other_kernels_for_chains_of_linear_layers_stay_in_full_precision(
    kernel: Any, units: Callable[..., None]
) -> None:
    units("avx512_bf16")
    engine = make_engine(mlp(), blobs([9]), replace(BF16, kernel=kernel, workers=1))
    assert isinstance(engine, Workers)
    assert isinstance(engine.engine, Sequential)
    assert (engine.engine.net.way.kernel, engine.engine.net.way.precision) == (kernel, "full")


def test_a_finished_run_stays_finished_where_its_precision_is_refused(
    units: Callable[..., None], tmp_path: Path
) -> None:
    units("avx512_bf16")
    run = umbel.Run(umbel.FedAvg(), blobs(), mlp(), engine=BF16)
    run.save(tmp_path / "run", 2)
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    units()
    with pytest.raises(UsageError, match="go on with a run that was begun in bf16 where there"):
        umbel.resume(tmp_path / "run", replace(run), rounds="+2")
    after = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert after == before


@pytest.mark.parametrize(
    ("build", "taken"),
    [
        (lambda: CNN().build((1, 28, 28), 10), None),
        (lstm, None),
        (lambda: LeNet().build((1, 28, 28), 10), "fewer than 50,000 values is slower"),
        (partial(wide, 500), "fewer than 1,000,000 values without convolutions or recurrent"),
        (partial(wide, 1500), None),
        (frozen_body, None),
        (attention, "attention is slower"),
        (lambda: CNN().build((1, 28, 28), 10).double(), "values of torch.float64 keep their own"),
        (lambda: MLP().build((784,), 10).double(), "values of torch.float64 keep their own"),
    ],
)
def test_other_networks_gain_from_some_size_on_and_else_stay_in_full_precision(
    build: Callable[[], nn.Module],
    taken: str | None,
    units: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    units("amx_bf16")
    caplog.set_level(logging.WARNING, "umbel")
    found = usable_precision(Net(build), CPU, "bf16")
    assert found == ("bf16" if taken is None else "full")
    assert (taken is None) is (not caplog.text)
    if taken is not None:
        assert "engine.precision: clients compute in full precision: in bf16, " in caplog.text
        assert taken in caplog.text


def test_a_gpu_computes_convolutions_in_bfloat16_and_linear_layers_do_not_slow_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu, has = torch.device("cuda"), [True]
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has[0])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "an old one")
    chain, images = Net(lambda: MLP().build((6,), 3)), Net(lambda: CNN().build((1, 8, 8), 3))
    assert usable_precision(images, gpu, "bf16") == "bf16"
    assert usable_precision(chain, gpu, "bf16") == "full"
    has[0] = False
    with pytest.raises(UsageError, match="an old one has no products of bfloat16 numbers"):
        usable_precision(images, gpu, "bf16")


def test_units_are_those_that_pytorch_knows_and_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    has = {"avx2": True, "avx512_bf16": True, "amx_bf16": False, "bf16": 1}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    for usable, units in ((True, ["avx512_bf16"]), (False, [])):
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda there=usable: there)
        assert precision.bf16_units() == units


def test_for_an_older_pytorch_the_system_says_what_units_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(precision, "Path", lambda _: info)
    assert precision.bf16_units() == []
    info.write_text("flags\t\t: fpu amx_bf16 avx512_bf16x\n")
    assert precision.bf16_units() == ["amx_bf16"]


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
    local = umbel.LocalTraining(epochs=2, batch_size=16)

    def run() -> umbel.Run:
        return umbel.Run(umbel.FedAvg(local=local), images(), Net(build), engine=BF16)

    *_, (whole, _) = run().rounds(3, folder=tmp_path / "whole")
    next(run().rounds(3, folder=tmp_path / "resumed"))
    *_, (resumed, _) = run().rounds(3, folder=tmp_path / "resumed")
    assert torch.equal(whole.models, resumed.models)
    *_, (full, _) = umbel.Run(umbel.FedAvg(local=local), images(), Net(build)).rounds(3)
    assert 0 < float((whole.models - full.models).norm() / full.models.norm()) < 0.1


class Attending(nn.Module):
    """Attention of a module's own."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(6, 3 * 200), nn.Linear(200, 3)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.before(x).view(len(x), 3, 5, 40).unbind(1)
        outputs: Tensor = self.after(
            nn.functional.scaled_dot_product_attention(queries, keys, values).flatten(1)
        )
        return outputs


def normalised(layer: nn.Module) -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 400), layer, nn.ReLU(), nn.Linear(400, 200), nn.Linear(200, 3)
    )


@pytest.mark.parametrize(
    "build",
    [
        partial(normalised, nn.LayerNorm(400)),
        partial(normalised, nn.GroupNorm(4, 400)),
        Attending,
    ],
    ids=["layer normalisation", "group normalisation", "attention of its own"],
)
def test_what_has_no_way_to_be_batched_in_bfloat16_runs_all_the_same(
    build: Callable[[], nn.Module], units: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    units("avx512_bf16")
    monkeypatch.setattr(precision, "SMALLEST_OTHERS", 0)
    net, federation = Net(build), blobs()
    engines = [make_engine(net, federation, replace(BF16, precision=p)) for p in ("full", "bf16")]
    for work in WORKS:
        asked = request(work, net, [0, 1, 2])
        full, half = (engine.send(asked).columns for engine in engines)
        for name, column in half.items():
            assert torch.equal(column.isnan(), full[name].isnan())
            apart = (column - full[name]).nan_to_num().double().norm()
            assert apart <= 0.3 * full[name].nan_to_num().double().norm()  # one is a difference


def images() -> umbel.Federation:
    """Clients that see few images often: such a first layer is kept by example, in bfloat16."""
    rng = np.random.default_rng(0)
    shards = [(rng.random((80, 784)), np.arange(80) % 10) for _ in range(3)]
    return umbel.Federation.from_arrays(shards)
