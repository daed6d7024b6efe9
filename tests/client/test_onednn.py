"""Products by oneDNN, which PyTorch takes on every x86: the maths and the rule, not the speed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.engines.test_equality import request
from tests.federations import blobs, mlp
from umbel.client.kernels import by_example, onednn
from umbel.client.kernels.products import forward
from umbel.client.work import Gradient, LocalTraining, MeanLoss, Work
from umbel.engines import Sequential, Vectorised
from umbel.engines.processes.workers import Workers, can_fork
from umbel.engines.vectorised import SMALL_MODEL

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
    reason="this build of PyTorch has no oneDNN",
)

MODELS, ROWS, SIZE_IN, SIZE_OUT = 3, 7, 11, 5


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Every product is oneDNN's; the numbers of rows of those that were taken."""
    seen: list[int] = []
    linear = onednn.linear

    def noted(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        seen.append(len(rows))
        return linear(rows, weight, bias)

    monkeypatch.setattr(onednn, "is_faster_for", lambda *_: True)
    monkeypatch.setattr(onednn, "linear", noted)
    yield seen
    assert seen, "no product was oneDNN's"


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.manual_seed(sum(shape)))


def close(found: Tensor, exact: Tensor) -> bool:
    return found.dtype == torch.float32 and torch.allclose(found.double(), exact, atol=1e-5)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("models", "of_rows"), [(MODELS, MODELS), (MODELS, 1), (1, MODELS)])
def test_outputs_of_a_layer(models: int, of_rows: int, with_bias: bool, taken: list[int]) -> None:
    x, weight = drawn(of_rows, ROWS, SIZE_IN), drawn(models, SIZE_OUT, SIZE_IN)
    bias = drawn(models, 1, SIZE_OUT)
    exact = x.double() @ weight.double().mT + (bias.double() if with_bias else 0)
    layer = [weight, bias] if with_bias else [weight]
    assert close(forward([layer], x, [False])[-1], exact)
    assert taken == ([ROWS] * MODELS if models > 1 else [ROWS * MODELS])


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("by_examples", [False, True])
@pytest.mark.parametrize(
    "work",
    [
        MeanLoss(),
        Gradient(),
        LocalTraining(batch_size=4, epochs=2),
        LocalTraining(batch_size=4, epochs=2, proximal=0.5),
        LocalTraining(batch_size=4, steps=1),
    ],
    ids=str,
)
def test_clients_do_the_same_work(
    work: Work, by_examples: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_example, "is_faster", lambda *_, **__: by_examples)
    federation = blobs(sizes=(10, 7, 4))
    net = mlp()
    asked = request(work, net, range(3))
    fast = Vectorised(net.using("dense"), federation).send(asked)
    plain = Sequential(mlp().using("general"), federation).send(asked)
    for name, column in plain.columns.items():
        assert torch.allclose(fast.columns[name].double(), column.double(), atol=2e-6), name


@pytest.mark.parametrize(
    ("processor", "faster"),
    [
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 26\n", True),
        ("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 27\nmodel\t\t: 2\n", True),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 25\n", False),
        ("vendor_id\t: GenuineIntel\ncpu family\t: 26\n", False),
        ("vendor_id\t: AuthenticAMD\n", False),
        ("cpu family\t: 26\n", False),
        ("", False),
        (None, False),
    ],
)
def test_it_is_taken_on_processors_on_which_the_other_library_leaves_half_unused(
    processor: str | None, faster: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    if processor is not None:
        (tmp_path / "cpuinfo").write_text(processor)
    assert onednn.is_faster.__wrapped__() == faster
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert not onednn.is_faster.__wrapped__()


def test_small_products_and_other_types_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "is_faster", lambda: True)
    large = torch.empty(200, 784)
    assert onednn.is_faster_for(20, large)
    assert not onednn.is_faster_for(10, large)
    assert not onednn.is_faster_for(1000, torch.empty(200, 200))
    # Models of this size and below may be computed with those of other seeds.
    assert not onednn.is_faster_for(10**6, torch.empty(SMALL_MODEL))
    assert not onednn.is_faster_for(1000, large.double())
    assert not onednn.is_faster_for(1000, large.bfloat16())
    assert not onednn.is_faster_for(1000, torch.empty(0, 784))


@pytest.mark.skipif(not can_fork(), reason="this system does not fork processes")
@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("work", [MeanLoss(), LocalTraining(batch_size=4, epochs=2)], ids=str)
def test_replies_do_not_depend_on_the_number_of_workers(work: Work) -> None:
    engine = Vectorised(mlp().using("dense"), blobs(), memory_mb=1e-6)
    asked = request(work, mlp(), [0, 1, 2, 3, 5])
    expected = engine.send(asked).columns
    for count in (1, 3):
        for name, column in Workers(engine, count).send(asked).columns.items():
            assert torch.equal(column, expected[name])
