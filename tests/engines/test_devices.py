"""What a GPU computes: the same as a CPU, to rounding, and the same bits when asked again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.federations import SIZES, blobs, each_its_own
from umbel.algorithms import FedAvg
from umbel.client.net import Net
from umbel.client.work import ChooseByLoss, Evaluation, Gradient, LocalTraining, MeanLoss, Work
from umbel.data.federation import Federation
from umbel.engines import EngineSettings, make_engine
from umbel.engines.devices import WORKSPACE, GpuSettings, repeatable
from umbel.flow import Request
from umbel.networks import CNN, CharLSTM, CharTransformer, LeNet, Linear, Model
from umbel.result.run import Run

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
CPU, GPU = EngineSettings(device="cpu"), EngineSettings(device="cuda")


def pictures(channels: int) -> Federation:
    rng = np.random.default_rng(0)
    made = [
        (rng.normal(size=(size, channels, 32, 32)), rng.integers(0, 10, size)) for size in SIZES
    ]
    return Federation.from_arrays(made, made, num_classes=10)


def sequences() -> Federation:
    rng = np.random.default_rng(0)
    made = [(rng.integers(0, 5, (size, 6)), rng.integers(0, 5, (size, 6))) for size in SIZES]
    return Federation.from_arrays(made, made, num_classes=5)


class Recurrent(nn.Module):
    """A recurrent layer and a head, from which not every value begins at a round address."""

    def __init__(self, kind: Callable[..., nn.RNNBase]) -> None:
        super().__init__()
        self.first = nn.Linear(6, 3)
        self.recurrent = kind(1, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.recurrent(self.first(x)[..., None])[0][:, -1])
        return out


Case = tuple[Callable[[], Federation], Callable[[], nn.Module]]


def built(model: Model, shape: tuple[int, ...], outputs: int) -> Callable[[], nn.Module]:
    return lambda: model.build(shape, outputs)


def normalised() -> nn.Module:
    layers = [nn.Conv2d(3, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.GELU(), nn.AdaptiveAvgPool2d(3)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(36, 10))


CASES: dict[str, Case] = {
    "linear": (blobs, built(Linear(), (6,), 3)),
    "cnn": (partial(pictures, 3), built(CNN((3, 5), 5, 7), (3, 32, 32), 10)),
    "lenet": (partial(pictures, 1), built(LeNet(), (1, 32, 32), 10)),
    "normalised": (partial(pictures, 3), normalised),
    "transformer": (sequences, built(CharTransformer(width=6, heads=2, hidden=7), (6,), 5)),
    "character LSTM": (sequences, built(CharLSTM(embedding=3, hidden=5), (6,), 5)),
    "LSTM": (blobs, partial(Recurrent, nn.LSTM)),
    "GRU": (blobs, partial(Recurrent, nn.GRU)),
    "RNN": (blobs, partial(Recurrent, nn.RNN)),
}

WORKS: list[Work] = [
    LocalTraining(lr=0.05, batch_size=4, epochs=2),
    Gradient(),
    MeanLoss(),
    Evaluation("test"),
    ChooseByLoss(LocalTraining(lr=0.05, batch_size=4)),
]


def asked(net: Net, federation: Federation, work: Work) -> Request:
    models = torch.stack([net.new(seed) for seed in range(3)])
    clients = torch.arange(federation.num_clients)
    theta = each_its_own(models[clients % 3])
    return Request(work, clients, clients.tolist(), {"models": models}, {"theta": theta})


@on_a_gpu
@pytest.mark.parametrize("work", WORKS, ids=lambda work: type(work).__name__)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["auto", "sequential"])
def test_a_gpu_agrees_with_the_cpu_and_repeats_itself(name: Any, case: str, work: Work) -> None:
    examples, build = CASES[case]
    federation = examples()
    net = Net(lambda: build().double())
    request = asked(net, federation, work)
    here = make_engine(net, federation, CPU).send(request).columns
    engine = make_engine(net, federation, EngineSettings(name=name, device="cuda"))
    there, again = engine.send(request).columns, engine.send(request).columns
    for column, values in here.items():
        torch.testing.assert_close(there[column], values, rtol=1e-6, atol=1e-9)
        assert torch.equal(there[column], again[column])


@on_a_gpu
@pytest.mark.parametrize("case", ["cnn", "character LSTM", "transformer"])
def test_full_precision_is_not_rounded_to_ten_bits_on_a_gpu(case: str) -> None:
    examples, build = CASES[case]
    federation, net = examples(), Net(build)
    request = asked(net, federation, Gradient())
    found = make_engine(net, federation, GPU).send(request).columns["gradient"].double()
    exact_net = Net(lambda: build().double())
    doubled = {"models": request.shared["models"].double()}
    theta = each_its_own(request.each["theta"].table.double())
    exact = Request(request.work, request.clients, request.seeds, doubled, {"theta": theta})
    expected = make_engine(exact_net, federation, CPU).send(exact).columns["gradient"]
    # cuDNN has ways to convolve that round more than others; ten bits would be off by a hundredth.
    assert (found - expected).norm() < 1e-3 * expected.norm()


@on_a_gpu
def test_a_tensor_that_forward_has_from_elsewhere_is_named_before_the_run_begins() -> None:
    first = torch.ones(6)

    class Masked(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x * first)

    said = r"Net: forward failed \(.*same device.*make new tensors on x.device"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(Net(lambda: Masked(6, 3)), blobs(), GPU)


@on_a_gpu
def test_workers_are_refused_on_a_gpu_with_what_to_write() -> None:
    settings = EngineSettings(device="cuda", workers=2)
    with pytest.raises(umbel.UsageError, match=r'1 on cuda.*for more write engine\.device = "cpu"'):
        make_engine(Net(lambda: nn.Linear(6, 3)), blobs(), settings)


@on_a_gpu
@pytest.mark.parametrize("precision", ["full", "bf16"])
def test_a_run_on_a_gpu_goes_on_to_the_same_bits(precision: Any, tmp_path: Any) -> None:
    federation = pictures(3)
    settings = EngineSettings(device="cuda", precision=precision)

    def run() -> Run:
        net = Net(lambda: CNN((3, 5), 5, 7).build((3, 32, 32), 10))
        method = FedAvg(LocalTraining(lr=0.05, batch_size=4))
        return Run(method, federation, net, seed=1, engine=settings)

    *_, (whole, _) = run().rounds(4)
    for state, _ in run().rounds(4, folder=tmp_path / "run"):
        del state
        break
    *_, (resumed, _) = run().rounds(4, folder=tmp_path / "run")
    assert torch.equal(resumed.models, whole.models)


def test_settings_stay_as_long_as_any_thread_needs_them() -> None:
    gpu, before = torch.device("cuda"), torch.are_deterministic_algorithms_enabled()
    one, other = repeatable(gpu), repeatable(gpu)
    with one:
        other.__enter__()
    assert torch.are_deterministic_algorithms_enabled()
    other.__exit__(None, None, None)
    assert torch.are_deterministic_algorithms_enabled() == before


def test_settings_are_put_back_after_an_error() -> None:
    before = GpuSettings.now()

    def interrupted() -> None:
        with repeatable(torch.device("cuda")):
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()
    with repeatable(torch.device("cpu")):
        assert GpuSettings.now() == before
    assert GpuSettings.now() == before


@pytest.fixture(autouse=True)
def workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cuBLAS is told stays with this test."""
    monkeypatch.setenv(WORKSPACE, ":4096:8")


class Large(MeanLoss):
    def __call__(self, *_: Any) -> dict[str, Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has")


@pytest.mark.parametrize("name", ["vectorised", "sequential"])
def test_a_device_with_too_little_memory_is_told_of_with_what_to_write(name: Any) -> None:
    net, federation = Net(lambda: Linear().build((6,), 3)), blobs()
    settings = EngineSettings(name=name, device="cpu", workers=1)
    engine: Any = make_engine(net, federation, settings)
    request = asked(net, federation, Large())
    said = r"engine.device: not enough memory: .* a smaller model \(CUDA out of memory\)$"
    with pytest.raises(umbel.UsageError, match=said):
        getattr(engine, "engine", engine).send(request)


def test_what_layers_keep_inside_counts_in_the_memory_of_a_chunk() -> None:
    net = Net(lambda: CharTransformer(width=8, heads=2, layers=1).build((256,), 5))
    x = torch.zeros(1, 256, dtype=torch.long)
    weights_of_attention = 2 * 256 * 256
    assert net.modules.values_per_example(x) < weights_of_attention
    assert net.modules.saved_per_example(x) > weights_of_attention
    again = net.modules.saved_per_example(x.expand(3, 256).contiguous())
    assert again == pytest.approx(net.modules.saved_per_example(x), rel=0.05)
