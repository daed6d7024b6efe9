"""A network that would not be trained is refused before the first round, and told why."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

import umbel
from tests.engines.modules import spread
from tests.preflight.fitted import LABELS, UNKNOWN, Doing, clients, numbers
from umbel.engines import make_engine
from umbel.preflight.network import check_fit


class Listed(nn.Module):
    """Has layers in a list, of which it may know some."""

    def __init__(self, known: bool = False, head: bool = True) -> None:
        super().__init__()
        self.blocks = [nn.Linear(4, 8), nn.Linear(8, 8)]
        self.head, self.used = nn.Linear(8, 3), head
        if known:
            self.first, self.second = self.blocks

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x).relu()
        out: Tensor = self.head(x) if self.used else x
        return out


@pytest.mark.parametrize("head", [True, False])
def test_layers_in_a_list_which_would_never_be_trained_are_refused(head: bool) -> None:
    federation = clients(numbers(12, 4), LABELS)
    with pytest.raises(umbel.UsageError, match=UNKNOWN.format(r"8,|\d, \d")):
        make_engine(umbel.Net(partial(Listed, head=head)), federation)
    make_engine(umbel.Net(partial(Listed, known=True)), federation)


class Remembers(nn.Module):
    """Has a generator, a counter, or what it saw."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind, self.passes = nn.Linear(4, 3), kind, 0
        self.seen = torch.zeros(3)
        self.numpy = np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        self.passes += 1
        added = {
            "generator of NumPy": lambda: torch.from_numpy(self.numpy.normal(size=3)).float(),
            "counter": lambda: torch.full((3,), 0.1 * self.passes),
            "mean of training": lambda: self.seen if not self.training else self.saw(out),
        }
        return out + added[self.kind]()

    def saw(self, out: Tensor) -> Tensor:
        self.seen = out.mean(0).detach()
        return self.seen


@pytest.mark.parametrize(
    "kind",
    [
        "generator of NumPy",
        "counter",
        "mean of training",
    ],
)
def test_what_a_module_keeps_to_itself_is_refused(kind: str) -> None:
    said = "the module's outputs are not those that plain PyTorch .* such as a counter"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(umbel.Net(partial(Remembers, kind)), clients(numbers(12, 4), LABELS))


class Stopped(torch.autograd.Function):
    """Lets no gradient through, though it says that it has one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        return x.clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> None:  # noqa: ARG004
        return None


@pytest.mark.parametrize(
    ("then", "what"), [(Tensor.detach, "outputs depend"), (Stopped.apply, "loss depends")]
)
def test_a_network_whose_outputs_or_loss_no_parameter_moves_is_refused(
    then: Callable[[Tensor], Tensor], what: str
) -> None:
    said = f"Net: the {what} on none of the 2 trained parameters, so that nothing would be trained"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(umbel.Net(partial(Doing, then)), clients(numbers(12, 4), LABELS))


def _absent(x: Tensor) -> Tensor:  # noqa: ARG001
    raise AssertionError("Torch not compiled with CUDA enabled")


def _attribute(x: Tensor) -> Tensor:  # noqa: ARG001
    raise AttributeError("'Doing' object has no attribute 'last'")


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (_absent, r"CUDA enabled\): leave \.cuda\(\) and \.to\(\.\.\.\) out of it"),
        (_attribute, "'Doing' object has no attribute 'last'"),
    ],
)
def test_what_fails_in_forward_is_not_called_the_inputs(
    then: Callable[[Tensor], Tensor], said: str
) -> None:
    with pytest.raises(umbel.UsageError, match=f"^Net: forward failed.*{said}"):
        make_engine(umbel.Net(partial(Doing, then)), clients(numbers(12, 4), LABELS))


class Locked(nn.Linear):
    """Holds what can't be copied."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.lock = threading.Lock()


class Keeping(nn.Linear):
    """Keeps what it computed, for somebody to look at."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.seen = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        self.seen = super().forward(x)
        return self.seen


def test_a_forward_that_keeps_what_it_computed_is_told_to_keep_no_tensor() -> None:
    net = umbel.Net(Keeping)
    with pytest.raises(
        umbel.UsageError, match=r"let forward keep no tensor on the module, as self"
    ):
        make_engine(net, clients(numbers(12, 4), LABELS))


def hooked_parameter() -> nn.Module:
    layer = nn.Linear(6, 3)
    layer.weight.register_hook(torch.zeros_like)  # type: ignore[no-untyped-call]
    return layer


def tied_by_data() -> nn.Module:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight.data = first.weight.data
    return nn.Sequential(first, second)


def with_a_view() -> nn.Module:
    layer = nn.Linear(6, 3)
    layer.register_buffer("seen", layer.weight.detach()[1:])
    return layer


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.LazyLinear(3), "weight has no size yet"),
        (tied_by_data, r"0\.weight and 1\.weight share memory.* assign one itself"),
        (with_a_view, "weight and seen share memory.* let forward make the view"),
        (lambda: nn.BatchNorm1d(6, momentum=None), "give it a momentum"),
        (lambda: nn.utils.weight_norm(nn.Linear(6, 3)), r"use nn\.utils\.parametrizations"),
        (Locked, r"keep files and locks out of it \(cannot pickle"),
        (hooked_parameter, "weight has a hook on its gradient"),
        (lambda: nn.Linear(6, 3, device="meta"), r"Net: weight has a shape but no values.*CPU"),
        (lambda: spread(nn.Linear(6, 3), []), "build wraps a module in DataParallel"),
    ],
)
def test_modules_that_no_model_can_be_built_of_are_refused(
    build: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises(umbel.UsageError, match=message):
        umbel.Net(build)


def test_orthogonal_weights_that_begin_alike_in_all_models_are_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def begun(trained: bool = True, **settings: Any) -> str:
        def build() -> nn.Module:
            layer = orthogonal(nn.Linear(4, 4), **settings)
            layer.requires_grad_(trained)
            return nn.Sequential(layer, nn.ReLU(), nn.Linear(4, 3))

        net = umbel.Net(build)
        caplog.clear()
        check_fit(net, clients(numbers(12, 4), LABELS))
        alike = torch.equal(*(net.module(net.new(seed))[0].weight for seed in (0, 1)))  # type: ignore[index]
        assert alike == ("begin with the same orthogonal" in caplog.text or not trained)
        return caplog.text

    assert "0.parametrizations.weight.0: all models begin with the same orthogonal" in begun()
    assert not begun(orthogonal_map="householder", use_trivialization=False)
    assert not begun(trained=False)
