"""A network that would not be trained is refused before the first round, and told why."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.nn.utils.parametrizations import orthogonal

import umbel
from tests.engines.fitted import LABELS, UNKNOWN, Doing, clients, numbers
from tests.engines.modules import spread
from umbel.client.objectives import REGRESSION
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
    """Has a generator, a counter, or what it saw; or a counter in a buffer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind, self.passes = nn.Linear(4, 3), kind, 0
        self.seen = torch.zeros(3)
        self.numpy, self.torch = np.random.default_rng(0), torch.Generator().manual_seed(0)
        self.count: Tensor
        self.register_buffer("count", torch.zeros((), dtype=torch.long), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        self.passes += 1
        self.count += self.training
        added = {
            "generator of NumPy": lambda: torch.from_numpy(self.numpy.normal(size=3)).float(),
            "generator of PyTorch": lambda: torch.randn(3, generator=self.torch),
            "counter": lambda: torch.full((3,), 0.1 * self.passes),
            "slow counter": lambda: 1e-4 * self.passes * out,
            "mean of training": lambda: self.seen if not self.training else self.saw(out),
            "counter in a buffer": lambda: 0.1 * self.count,
            "generator of all": lambda: torch.randn(3) + float(np.random.normal()),  # noqa: NPY002
        }
        return out + added[self.kind]()

    def saw(self, out: Tensor) -> Tensor:
        self.seen = out.mean(0).detach()
        return self.seen


@pytest.mark.parametrize(
    "kind",
    [
        *("generator of NumPy", "generator of PyTorch"),
        *("counter", "slow counter", "mean of training"),
    ],
)
def test_what_a_module_keeps_to_itself_is_refused(kind: str) -> None:
    said = "Net: forward gives other outputs when it is called again with the same inputs"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(umbel.Net(partial(Remembers, kind)), clients(numbers(12, 4), LABELS))


class Standing(nn.Linear):
    """Subtracts the mean of the first mini-batch that it sees, for good."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.mean: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.mean is None:
            self.mean = x.detach().mean(0)
        return super().forward(x - self.mean)


def test_what_depends_on_the_first_inputs_is_refused() -> None:
    said = "Net: forward gives other outputs after it was called with other inputs"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(umbel.Net(Standing), clients(numbers(12, 4), LABELS))


def test_buffers_that_can_not_be_written_are_taken() -> None:
    class Broadcast(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)
            self.scale: Tensor
            self.register_buffer("scale", torch.ones(1).expand(3))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * self.scale

    make_engine(umbel.Net(Broadcast), clients(numbers(12, 4), LABELS))


@pytest.mark.parametrize("kind", ["counter in a buffer", "generator of all"])
def test_what_umbel_puts_back_is_taken(kind: str) -> None:
    make_engine(umbel.Net(partial(Remembers, kind)), clients(numbers(12, 4), LABELS))


class Clinging(nn.Module):
    """Scales its outputs by a function that holds on to the module that it was made in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 3), nn.Parameter(torch.ones(3))
        self.scaled: Callable[[Tensor], Tensor] = lambda x: x * self.scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(self.layer(x))


def test_a_function_that_holds_on_to_the_first_module_is_refused() -> None:
    said = "Net: forward uses scale of the module that was built.* make it a method"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(umbel.Net(Clinging), clients(numbers(12, 4), LABELS))


class Looking(nn.Module):
    """Asks the module that it was made in, whichever copy it is in, whether that trains."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.then: Callable[[Tensor], Tensor] = torch.clone
        if way == "a function":
            self.then = lambda x: dropout(x, 0.8, self.training)
        if way == "a hook":
            self.layer.register_forward_hook(lambda *given: given[-1] * (1 + self.training))

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self.layer(x))


@pytest.mark.parametrize("way", ["a function", "a hook"])
def test_a_function_that_looks_at_the_mode_of_the_first_module_is_refused(way: str) -> None:
    said = "Net: forward looks at whether the module that was built is in training.* make it a"
    net = umbel.Net(partial(Looking, way))
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(net, clients(numbers(12, 4), LABELS))
    assert net.modules.training.training


class Field(nn.Module):
    """The slope of a learnt potential: forward differentiates by its inputs."""

    def __init__(self, inputs: Callable[[Tensor], Tensor], enabled: bool = True) -> None:
        super().__init__()
        self.potential = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.inputs, self.enabled = inputs, enabled

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad() if self.enabled else nullcontext():
            x = self.inputs(x)
            return torch.autograd.grad(self.potential(x).sum(), x, create_graph=True)[0]


@pytest.mark.parametrize(
    "inputs", [Tensor.requires_grad_, lambda x: x.detach().clone().requires_grad_()]
)
def test_a_network_that_differentiates_by_its_inputs_is_taken(
    inputs: Callable[[Tensor], Tensor],
) -> None:
    net = umbel.Net(partial(Field, inputs), REGRESSION)
    make_engine(net, clients(numbers(12, 4), -numbers(12, 4)))


@pytest.mark.parametrize(
    ("inputs", "enabled"), [(Tensor.requires_grad_, False), (torch.clone, True)]
)
def test_a_network_that_differentiates_where_gradients_are_off_is_told_of(
    inputs: Callable[[Tensor], Tensor], enabled: bool
) -> None:
    net = umbel.Net(partial(Field, inputs, enabled), REGRESSION)
    said = r"Net: forward differentiates, .* `with torch\.enable_grad\(\):`"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(net, clients(numbers(12, 4), -numbers(12, 4)))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_a_layer_that_torch_jit_made_is_taken_and_can_be_trained_on() -> None:
    net = umbel.Net(lambda: nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.Linear(4, 3))))
    make_engine(net, clients(numbers(12, 4), LABELS))
    torch.optim.SGD(net.module(net.new(0)).parameters())


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


class Silent(nn.Linear):
    """Can't be copied, and does not say why."""

    def __deepcopy__(self, memo: object) -> Silent:
        raise TypeError


def test_a_module_that_can_not_be_copied_and_does_not_say_why_is_told_of() -> None:
    with pytest.raises(umbel.UsageError, match="TypeError"):
        make_engine(umbel.Net(lambda: Silent(6, 3)), clients(numbers(12, 6), LABELS))


class Keeping(nn.Linear):
    """Keeps what it computed, for somebody to look at."""

    def __init__(self, kept: Callable[[Tensor], Tensor]) -> None:
        super().__init__(4, 3)
        self.kept, self.seen = kept, torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        outputs = super().forward(x)
        self.seen = self.kept(outputs)
        return outputs


@pytest.mark.parametrize("kept", [Tensor.relu, Tensor.detach])
def test_a_forward_that_keeps_what_it_computed_is_told_to_keep_no_tensor(
    kept: Callable[[Tensor], Tensor],
) -> None:
    net = umbel.Net(partial(Keeping, kept))
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


def with_a_column() -> nn.Module:
    layer = nn.Linear(6, 3)
    frozen = nn.Parameter(layer.weight.detach()[:, 1], requires_grad=False)
    layer.register_parameter("column", frozen)
    return layer


def tied_by_transposing() -> nn.Module:
    first, second = nn.Linear(6, 4), nn.Linear(4, 6)
    second.weight = nn.Parameter(first.weight.t())
    return nn.Sequential(first, second)


def complex_layer() -> nn.Module:
    return nn.Linear(6, 3, dtype=torch.complex64)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.LazyLinear(3), "weight has no size yet"),
        (
            lambda: nn.Sequential(nn.LazyBatchNorm1d(affine=False), nn.Linear(6, 3)),
            r"0\.running_mean has no size yet",
        ),
        (tied_by_data, r"0\.weight and 1\.weight share memory.* assign one itself"),
        (with_a_view, "weight and seen share memory.* let forward make the view"),
        (with_a_column, "weight and column share memory"),
        (tied_by_transposing, r"0\.weight and 1\.weight share memory"),
        (complex_layer, "complex numbers can't be trained"),
        (lambda: nn.BatchNorm1d(6, momentum=None), "give it a momentum"),
        (lambda: nn.utils.weight_norm(nn.Linear(6, 3)), r"use nn\.utils\.parametrizations"),
        (Locked, r"keep files and locks out of it \(cannot pickle"),
        (hooked_parameter, "weight has a hook on its gradient"),
        (lambda: nn.Linear(6, 3, device="meta"), r"Net: weight has a shape but no values.*CPU"),
        (
            lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, device="meta")),
            r"Net: 1\.weight has a shape but no values",
        ),
        (lambda: torch.jit.script(nn.Linear(6, 3)), r"without torch\.jit\.script"),
        (lambda: spread(nn.Linear(6, 3), []), "build wraps a module in DataParallel"),
        (
            lambda: nn.Sequential(spread(nn.Linear(6, 6), [0]), nn.Linear(6, 3)),
            "Net: 0 wraps a module in DataParallel: leave",
        ),
    ],
)
def test_modules_that_no_model_can_be_built_of_are_refused(
    build: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises(umbel.UsageError, match=message):
        umbel.Net(build)


def test_tensors_that_are_not_trained_may_share_memory() -> None:
    def frozen_twice() -> nn.Module:
        tied = tied_by_data().requires_grad_(False)
        tied.register_buffer("seen", tied.get_parameter("0.weight").detach())
        return nn.Sequential(tied, nn.Linear(6, 3))

    assert umbel.Net(frozen_twice).layout.num_weights == 6 * 3 + 3


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
