"""State that follows from the weights is found again for every model that is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import register_parametrization

import umbel
from tests.federations import blobs
from umbel import FedAvg, LocalTraining, Net, Run
from umbel.algorithms import IFCA, Sattler
from umbel.algorithms.base import Algorithm

LOCAL = LocalTraining(lr=0.3, epochs=2, batch_size=8)


def bounded() -> nn.Module:
    first, last = spectral_norm(nn.Linear(6, 8)), spectral_norm(nn.Linear(8, 3))
    return nn.Sequential(first, nn.ReLU(), last)


class Divided(nn.Module):
    """Divides a weight by an estimate of its largest singular value, of its own."""

    right: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("right", normalize(torch.randn(width), dim=0))

    def forward(self, weight: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                left = normalize(weight @ self.right, dim=0)
                self.right.copy_(normalize(weight.T @ left, dim=0))
        length: Tensor = (weight @ self.right.clone()).norm()
        return weight / length


def own() -> nn.Module:
    layer = nn.Linear(6, 3)
    register_parametrization(layer, "weight", Divided(6))
    return nn.Sequential(layer)


def norms(module: nn.Module) -> list[float]:
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    return [float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) for layer in layers]


def run_of(method: Algorithm[Any], net: Net) -> Run:
    return Run(method, blobs((40,) * 6), net, engine=umbel.EngineSettings(workers=1))


@pytest.mark.parametrize(
    "method",
    [FedAvg(LOCAL), IFCA(2, LOCAL), Sattler(local=LOCAL, send="gradient")],
    ids=lambda method: type(method).__name__,
)
def test_the_models_that_clients_are_served_have_a_norm_of_one(
    method: Algorithm[Any],
) -> None:
    net = Net(bounded)
    *_, (state, _) = run_of(method, net).rounds(2)
    for theta in state.models:
        assert norms(net.module(theta)) == pytest.approx(
            [1.0] * len(norms(net.module(theta))), rel=1e-2
        )


def test_a_mean_of_two_models_has_the_norm_of_its_own_weights_wherever_it_is_used() -> None:
    net, x = Net(bounded), blobs((40,) * 6).train.x[:20]
    mean = (net.new(0) + net.new(1)) / 2
    module = net.module(mean)
    assert norms(module) == pytest.approx([1.0, 1.0], rel=1e-2)
    torch.testing.assert_close(net.outputs(mean, x), module(x))
    for kernel in ("general", "in-place"):
        torch.testing.assert_close(net.using(kernel).outputs(mean, x), module(x))
    settled = net.settled(mean)
    torch.testing.assert_close(net.settled(settled), settled, atol=1e-2, rtol=0)
    assert torch.equal(mean[: net.layout.num_weights], settled[: net.layout.num_weights])


def test_a_saved_and_an_exported_model_have_the_norm_of_their_weights(tmp_path: Path) -> None:
    net = Net(bounded)
    result = run_of(FedAvg(LOCAL), net).save(tmp_path / "run", 2)
    assert norms(result.model(0)) == pytest.approx([1.0, 1.0], rel=1e-2)
    plain = bounded()
    plain.load_state_dict(result.folder.models.model(0))
    assert norms(plain.eval()) == pytest.approx([1.0, 1.0], rel=1e-2)
    assert result.export("safetensors", cluster=0).largest_difference < 1e-6


class Cached(nn.Module):
    """Keeps what it computed from its weights, for evaluations."""

    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 6))
        self.register_buffer("kept", torch.zeros(3, 6))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x @ self.kept.T
        self.kept.copy_(normalize(self.weight.detach()))
        return x @ normalize(self.weight).T


def test_a_cache_of_weights_is_refused_by_name() -> None:
    run = run_of(FedAvg(LOCAL), Net(Cached, moving=["kept"]))
    with pytest.raises(umbel.UsageError, match="computes the buffer kept from the weights alone"):
        next(run.rounds(1))


def test_the_older_spectral_normalisation_is_refused_by_name() -> None:
    old = torch.nn.utils.spectral_norm
    with pytest.raises(umbel.UsageError, match=r"Net: 0 has torch.nn.utils.spectral_norm"):
        Net(lambda: nn.Sequential(old(nn.Linear(6, 3))))
