"""What does not fit is refused before the first round, in a sentence that says what to write."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils.rnn import pack_padded_sequence

import umbel
from tests.engines.modules import OwnStatistics, Recurrent, Transformer, chain, normed
from umbel.client.objectives import BINARY, CLASSIFICATION, REGRESSION, Objective
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.engines import EngineSettings, Vectorised, make_engine
from umbel.engines.fit import sample
from umbel.networks import MLP


def clients(x: Any, y: Any, count: int = 3) -> Federation:
    return Federation.from_arrays([(x, y)] * count, test_fraction=0.2)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


LABELS = np.arange(12) % 3


class Counting(nn.Module):
    """Counts its passes in a whole number."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: Tensor
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        out: Tensor = self.layer(x) / (1 + 0.1 * self.steps)
        return out


class Clamped(nn.Module):
    """Keeps its weights within a bound, by writing in them; PyTorch notes it, or does not."""

    def __init__(self, bound: float, noted: bool = True) -> None:
        super().__init__()
        self.layer, self.bound, self.noted = nn.Linear(6, 3), bound, noted

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            weight = self.layer.weight if self.noted else self.layer.weight.data
            weight.clamp_(-self.bound, self.bound)
        out: Tensor = self.layer(x)
        return out


class Averaging(nn.Module):
    """Keeps a mean of what it has seen, as a new tensor each time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        out: Tensor = self.layer(x - self.mean)
        return out


def test_a_moving_buffer_that_is_replaced_is_refused() -> None:
    net = umbel.Net(Averaging, moving=["mean"])
    said = r"training replaces the buffer mean .* write into it, as by self\.mean\.copy_"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(net, clients(numbers(12, 6), LABELS))


class Shifting(nn.Linear):
    """Takes its inputs to be its own."""

    def __init__(self) -> None:
        super().__init__(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.sub_(0.5))


class Hollow(Shifting):
    """Has first values that nobody gave it."""

    def reset_parameters(self) -> None:
        nn.init.constant_(self.bias, torch.nan)
        nn.init.zeros_(self.weight)


class Asserting(Shifting):
    """Asserts what inputs are."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1] == 5
        return super().forward(x)


class Looking(Shifting):
    """Looks up what is not there."""

    def forward(self, x: Tensor) -> Tensor:
        return {"five": super().forward(x)}["six"]


class Transposed(nn.Module):
    """Logits (B, T, C), as sequence models give them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


@pytest.mark.parametrize(
    ("build", "objective", "x", "y", "message"),
    [
        (chain(6, 3), CLASSIFICATION, numbers(12, 6), LABELS * 1.0, "give labels as whole numbers"),
        (chain(6, 1), REGRESSION, numbers(12, 6), LABELS, "give y as floating-point numbers"),
        (
            chain(6, 2),
            CLASSIFICATION,
            numbers(12, 6),
            LABELS,
            "the network's outputs: 2 is not one for each of 3 classes",
        ),
        (chain(6, 1), CLASSIFICATION, numbers(12, 6), LABELS % 2, r"pass umbel\.BINARY to Net"),
        (
            chain(6, 2),
            CLASSIFICATION,
            numbers(12, 6),
            numbers(12, 3) > 0,
            r"where the labels are 3 answers of yes or no, pass umbel\.BINARY to Net",
        ),
        (
            chain(6, 3),
            REGRESSION,
            numbers(12, 6),
            numbers(12),
            r"outputs have shape \(B, 3\) and the targets y \(B,\)",
        ),
        (
            chain(6, 6),
            REGRESSION,
            numbers(12, 6),
            numbers(12, 2, 3),
            r"outputs have shape \(B, 6\) and the targets y \(B, 2, 3\)",
        ),
        (
            Transposed,
            CLASSIFICATION,
            numbers(12, 5, 2),
            np.arange(60).reshape(12, 5) % 4,
            r"\(B, 5, 4\) and the labels y \(B, 5\): the classes must be dimension 1.*movedim",
        ),
        (chain(6, 1), BINARY, numbers(12, 6), LABELS, "y: 2 is not 0 or 1, as"),
        (
            lambda: nn.Linear(6, 3),
            CLASSIFICATION,
            numbers(12, 2, 3),
            LABELS,
            r"does not take inputs of shape \(2, 3\); begin it with nn\.Flatten\(\)",
        ),
        (
            lambda: nn.Conv2d(3, 3, 2),
            CLASSIFICATION,
            numbers(12, 1, 4, 4),
            LABELS,
            r"does not take inputs of shape \(1, 4, 4\)",
        ),
        (
            lambda: nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(8, 3)),
            CLASSIFICATION,
            np.full((12, 4), 7),
            LABELS,
            "not a row of the network's embedding.*make num_embeddings larger",
        ),
        (
            lambda: nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(8, 3)),
            CLASSIFICATION,
            np.full((12, 4), 7.0),
            LABELS,
            "give x as integers",
        ),
        (chain(4, 3), CLASSIFICATION, np.full((12, 4), 7), LABELS, "give x as floats"),
        (
            lambda: nn.Sequential(nn.LSTM(2, 3)),
            CLASSIFICATION,
            numbers(12, 5, 2),
            LABELS,
            "the network returns a tuple, and one tensor is needed",
        ),
        (
            chain(6, 3),
            Objective(lambda o, y: (o - y).mean(), lambda o, y: (o - y).mean(1)),
            numbers(12, 6),
            numbers(12, 3),
            r"objective\.losses: \(\) is not one value an example: \(2,\)",
        ),
        (
            chain(1, 1),
            Objective(lambda o, y: ((o - y) ** 2).mean(1), lambda o, y: (o[:, 0] - y).abs()),
            numbers(12, 1),
            numbers(12),
            r"objective\.losses: the value of an example depends on the others",
        ),
        (
            chain(6, 3),
            Objective(
                lambda o, y: (o.argmax(1) != y).float(), lambda o, y: (o.argmax(1) == y).float()
            ),
            numbers(12, 6),
            LABELS,
            "the loss has no gradient",
        ),
        (
            Counting,
            CLASSIFICATION,
            numbers(12, 6),
            LABELS,
            "changes the buffer steps.*counters can't be averaged",
        ),
        (chain(6, 2), CLASSIFICATION, numbers(12, 6), LABELS % 2 + 1, "labels count from 0"),
        (
            OwnStatistics,
            CLASSIFICATION,
            numbers(12, 6),
            LABELS,
            r"changes the buffer running.*Net\(\.\.\., moving=\['running'\]\)",
        ),
        (
            Shifting,
            CLASSIFICATION,
            numbers(12, 6),
            LABELS,
            r"writes in its inputs.*x\.sub_\(0\.5\)",
        ),
        (
            Hollow,
            CLASSIFICATION,
            numbers(12, 6),
            LABELS,
            "Net: bias begins with nan: give it finite",
        ),
        (Asserting, CLASSIFICATION, numbers(12, 6), LABELS, r"shape \(6,\) \(AssertionError"),
        (Looking, CLASSIFICATION, numbers(12, 6), LABELS, r"shape \(6,\) \(KeyError: 'six'\)"),
        *(
            (
                build,
                CLASSIFICATION,
                x,
                LABELS,
                r"writes in the parameter .*weight, as nn\.Embedding",
            )
            for build, x in (
                (partial(Clamped, 0.05), numbers(12, 6)),
                (partial(Clamped, 5.0, noted=False), numbers(12, 6)),
                (
                    lambda: nn.Sequential(
                        nn.Embedding(9, 2, max_norm=1.0), nn.Flatten(), nn.Linear(8, 3)
                    ),
                    np.full((12, 4), 7),
                ),
            )
        ),
    ],
)
@pytest.mark.parametrize("engine", ["auto", "sequential"])
def test_what_does_not_fit_is_refused_before_the_first_round(
    build: Callable[[], nn.Module],
    objective: Objective,
    x: np.ndarray,
    y: np.ndarray,
    message: str,
    engine: Any,
) -> None:
    run = umbel.Run(
        umbel.FedAvg(),
        clients(x, y),
        umbel.Net(build, objective),
        engine=EngineSettings(name=engine, device="cpu"),
    )
    with pytest.raises(umbel.UsageError, match=message):
        next(run.rounds(1))


class Packed(nn.Module):
    """An LSTM over sequences of unequal length, as PyTorch's own tutorials do it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x != 0).sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(x[..., None], lengths, batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        out: Tensor = self.head(last[-1])
        return out


class Straight(torch.autograd.Function):
    """Rounds, and lets gradients through: written without a rule for `torch.func`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        return x.round()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # noqa: ARG004
        return slope


class Rounded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Straight.apply(self.layer(x))  # type: ignore[no-untyped-call]
        return out


class Tracked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.InstanceNorm1d(2, track_running_stats=True), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(x).flatten(1))
        return out


@pytest.mark.parametrize(
    ("build", "x"),
    [
        (Packed, np.abs(numbers(12, 6))),
        (Rounded, numbers(12, 6)),
        (Tracked, numbers(12, 2, 5)),
        (
            lambda: nn.Sequential(nn.Embedding(9, 3, sparse=True), nn.Flatten(), nn.Linear(9, 3)),
            np.arange(36).reshape(12, 3) % 9,
        ),
    ],
    ids=["packed sequences", "own autograd function", "instance norm", "sparse embedding"],
)
@pytest.mark.parametrize(
    "method",
    [umbel.FedAvg(), umbel.IFCA(), umbel.CFLGP(), umbel.PFedMe(), umbel.Joint()],
    ids=lambda method: type(method).__name__,
)
def test_what_only_plain_pytorch_can_do_runs_one_client_after_another(
    build: Callable[[], nn.Module], x: np.ndarray, method: umbel.Algorithm[Any]
) -> None:
    federation, net = clients(x, LABELS), umbel.Net(build)
    *_, (state, record) = umbel.Run(method, federation, net).rounds(2)
    assert state.models.isfinite().all()
    assert record.refused == {}


@pytest.mark.parametrize("engine", ["auto", "sequential", "vectorised"])
@pytest.mark.parametrize("wrong", [7, -1])
@pytest.mark.parametrize("where", ["train", "test"])
def test_a_token_out_of_range_is_refused_with_the_clients_name(
    engine: Any, wrong: int, where: str
) -> None:
    x = np.arange(60).reshape(20, 3) % 5
    bad = x.copy()
    bad[17, 1] = wrong
    y = x[:, 0] % 2
    train = [(bad if where == "train" else x, y), (x, y)]
    test = [(x, y), (bad if where == "test" else x, y)]
    federation = Federation.from_arrays(train, test, names=["north", "south"])
    net = umbel.Net(lambda: nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(9, 2)))
    run = umbel.Run(umbel.FedAvg(), federation, net, engine=EngineSettings(name=engine))
    who = "north" if where == "train" else "south"
    with pytest.raises(umbel.UsageError, match=f"client {who}: x: an input is not a row of the"):
        next(run.rounds(1))


def test_targets_that_are_not_scaled_are_named_where_training_diverges() -> None:
    prices = 200_000 + 50_000 * numbers(12)
    net = umbel.Net(chain(3, 1), REGRESSION)
    run = umbel.Run(umbel.FedAvg(), clients(numbers(12, 3), prices), net)
    with pytest.raises(umbel.QuorumError, match=r"scale y, which reaches .*e\+05, to about 1"):
        next(run.rounds(1))


class Locked(nn.Linear):
    """Holds what can't be copied."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.lock = threading.Lock()


def hooked_parameter() -> nn.Module:
    layer = nn.Linear(6, 3)
    layer.weight.register_hook(torch.zeros_like)  # type: ignore[no-untyped-call]
    return layer


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.LazyLinear(3), "weight has no size yet"),
        (lambda: nn.BatchNorm1d(6, momentum=None), "give it a momentum"),
        (lambda: nn.utils.weight_norm(nn.Linear(6, 3)), r"use nn\.utils\.parametrizations"),
        (Locked, r"keep files and locks out of it \(cannot pickle"),
        (hooked_parameter, "weight has a hook on its gradient"),
        (lambda: nn.Linear(6, 3, device="meta"), r"Net: weight has a shape and no values.*CPU"),
        (
            lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, device="meta")),
            r"Net: 1\.weight has a shape and no values",
        ),
        (lambda: torch.jit.script(nn.Linear(6, 3)), r"without torch\.jit\.script"),
    ],
)
def test_modules_that_no_model_can_be_built_of_are_refused(
    build: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises(umbel.UsageError, match=message):
        umbel.Net(build)


def test_what_is_no_objective_is_refused() -> None:
    for wrong in ("regression", nn.CrossEntropyLoss()):
        with pytest.raises(umbel.UsageError, match=r"such as .*umbel\.REGRESSION"):
            umbel.Net(chain(3, 1), wrong)  # type: ignore[arg-type]
    with pytest.raises(umbel.UsageError, match="Objective: losses: 3 is not a function"):
        Objective(3, 4)  # type: ignore[arg-type]
    with pytest.raises(umbel.UsageError, match="moving: 'running' is not a list"):
        umbel.Net(OwnStatistics, moving="running")


def test_a_mini_batch_of_one_under_batch_normalisation_is_refused_with_the_clients_name() -> None:
    sizes = (8, 9)
    train = [(numbers(size, 6), np.arange(size) % 3) for size in sizes]
    federation = Federation.from_arrays(train, train, names=["north", "south"])
    net = umbel.Net(normed(lambda: nn.BatchNorm1d(8)))
    local = umbel.LocalTraining(batch_size=4, epochs=1)
    with pytest.raises(umbel.UsageError, match=r"client south: its 9 examples.*drop_last = true"):
        next(umbel.Run(umbel.FedAvg(local=local), federation, net).rounds(1))
    whole = umbel.LocalTraining(batch_size=4, epochs=1, drop_last=True)
    next(umbel.Run(umbel.FedAvg(local=whole), federation, net).rounds(1))
    images = Federation.from_arrays([(numbers(5, 1, 4, 4), np.arange(5) % 3)] * 2)
    several = umbel.Net(
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    )
    next(umbel.Run(umbel.FedAvg(local=local), images, several).rounds(1))


def test_more_outputs_than_classes_are_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    run = umbel.Run(umbel.FedAvg(), clients(numbers(12, 6), LABELS), umbel.Net(chain(6, 9)))
    next(run.rounds(1))
    assert "the network has 9 outputs, and there are 3 classes" in caplog.text


@pytest.mark.parametrize("num_inputs", [5, 6, 7, 10, 14, 30, 50])
def test_small_networks_of_any_width_are_batched(num_inputs: int) -> None:
    federation = clients(numbers(12, num_inputs), LABELS)
    for hidden in [(), (1,), (5,), (7,), (16,), (33,), (8, 8), (13, 3), (64, 10)]:
        net = umbel.Net(lambda hidden=hidden: MLP(hidden).build((num_inputs,), 3))  # type: ignore[misc]
        assert isinstance(make_engine(net, federation), Vectorised)
        activated = umbel.Net(  # no chain of ReLUs, so that it is tried
            lambda hidden=hidden: nn.Sequential(  # type: ignore[misc]
                MLP(hidden).build((num_inputs,), 3), nn.Tanh()
            )
        )
        assert isinstance(make_engine(activated, federation), Vectorised)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "method",
    [
        umbel.FedAvg(),
        umbel.IFCA(),
        umbel.LCFL(),
        umbel.CFLGP(),
        umbel.Joint(),
        umbel.FLACC(),
        umbel.FedEM(),
        umbel.PFedMe(),
        umbel.PerFedAvg(),
    ],
    ids=lambda method: type(method).__name__,
)
def test_recurrent_networks_run_under_every_method(
    kind: Callable[..., nn.Module], method: umbel.Algorithm[Any], caplog: pytest.LogCaptureFixture
) -> None:
    federation = clients(numbers(12, 4, 2), LABELS)
    net = umbel.Net(lambda: Recurrent(kind))
    with caplog.at_level(logging.INFO):
        *_, (state, record) = umbel.Run(method, federation, net).rounds(2)
    assert state.models.isfinite().all()
    assert record.loss is not None
    said = [entry for entry in caplog.records if "one after another" in entry.getMessage()]
    assert len(said) == 1


def test_a_causal_mask_does_not_poison_the_updates() -> None:
    tokens = np.arange(72).reshape(12, 6) % 7
    net = umbel.Net(Transformer)
    assert not any("mask" in entry.name for entry in net.layout.rest)
    *_, (state, record) = umbel.Run(umbel.FLACC(), clients(tokens, tokens), net).rounds(2)
    assert state.models.isfinite().all()
    assert record.refused == {}


def test_divergence_says_what_happened_and_what_to_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unscaled = clients(numbers(12, 6) * 1e6, numbers(12))
    run = umbel.Run(umbel.FedAvg(), unscaled, umbel.Net(chain(6, 1), REGRESSION))
    expected = r"training diverged for 3 of 3 clients.*scale the inputs, which reach .*e\+06.*lower"
    with pytest.raises(umbel.QuorumError, match=expected):
        next(run.rounds(1))
    some = Federation.from_arrays(
        [(numbers(12, 6) * scale, numbers(12)) for scale in (1, 1, 1, 1e6)]
    )
    small = umbel.LocalTraining(lr=0.01)
    run = umbel.Run(umbel.FedAvg(local=small), some, umbel.Net(chain(6, 1), REGRESSION))
    records = [record for _, record in run.rounds(3)]
    assert all(set(record.refused) == {3} for record in records)
    assert "training diverged there, or the reply is faulty" in records[0].refused[3]
    warnings = [entry for entry in caplog.records if "training diverged" in entry.getMessage()]
    assert len(warnings) == 1


def test_numbers_spoilt_on_purpose_are_not_called_divergence() -> None:
    federation, net = clients(numbers(12, 6), LABELS), umbel.Net(chain(6, 3))
    faults = umbel.Faults(not_finite=1.0)
    with pytest.raises(umbel.QuorumError, match=r"^round 0: 0 of 3 clients gave a usable reply"):
        next(umbel.Run(umbel.FedAvg(), federation, net, faults=faults).rounds(1))


@pytest.mark.parametrize("number", [16_777_220, 20_000_000, 100_000_000])
def test_the_examples_that_are_tried_are_there_however_many_there_are(number: int) -> None:
    federation = clients(numbers(12, 4), LABELS, count=1)
    row, y = federation.train.x[:1], torch.tensor(2)
    many = Split(row.expand(number, 4), y.expand(number), np.array([0, number]))
    net = umbel.Net(lambda: nn.Linear(4, 3))
    batch = sample(net, replace(federation, train=many))
    assert batch.y.tolist() == [2, 2]


@pytest.mark.parametrize("kernel", ["auto", "general"])
def test_an_evaluation_leaves_the_servers_models_as_they_are(kernel: Any) -> None:
    federation = clients(numbers(12, 6), LABELS)
    net = umbel.Net(partial(OwnStatistics, always=True), moving=["running"])
    run = umbel.Run(umbel.FedAvg(), federation, net, engine=EngineSettings(kernel=kernel))
    state = run.start(2)
    before = state.models.clone()
    run.scores(state, run.context(0, 2))
    assert torch.equal(state.models, before)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_run_where_gradients_are_turned_off_is_refused(off: Callable[[], Any]) -> None:
    federation = clients(numbers(12, 4), LABELS)
    with off(), pytest.raises(umbel.UsageError, match="gradients are turned off here"):
        make_engine(umbel.Net(lambda: nn.Linear(4, 3)), federation)


ONE_HOT = np.eye(3, dtype=int)[LABELS]
SEVERAL = np.where(np.arange(12)[:, None] == 5, [1, 1, 0], ONE_HOT)  # one row has two labels


@pytest.mark.parametrize("objective", [CLASSIFICATION, REGRESSION])
@pytest.mark.parametrize("kind", [int, float])
def test_classes_as_indicators_are_refused_where_a_class_is_learnt(
    objective: Objective, kind: type
) -> None:
    net = umbel.Net(lambda: nn.Linear(6, 3), objective)
    said = r"y: 3 numbers an example, of which one is 1 .* y.argmax\(1\); or, .* umbel.BINARY"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(net, clients(numbers(12, 6), ONE_HOT.astype(kind)))


def test_one_example_with_two_labels_tells_that_indicators_are_meant_in_whichever_split() -> None:
    net = umbel.Net(lambda: nn.Linear(6, 3), REGRESSION)
    x, rows = numbers(12, 6), SEVERAL.astype(float)
    for part in ("test", "validation"):
        given: dict[str, Any] = {"test": [(x, ONE_HOT.astype(float))]} | {part: [(x, rows)]}
        make_engine(net, Federation.from_arrays([(x, ONE_HOT.astype(float))], **given))


def _distance(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs - y).abs().mean(1)


@pytest.mark.parametrize(
    "objective", [BINARY, Objective(_distance, lambda o, y: _distance(o, y) < 1)]
)
def test_indicators_are_taken_where_several_may_be_1_and_by_objectives_of_ones_own(
    objective: Objective,
) -> None:
    make_engine(umbel.Net(lambda: nn.Linear(6, 3), objective), clients(numbers(12, 6), ONE_HOT))


def test_one_marked_step_of_an_example_is_a_class_for_each_step() -> None:
    net = umbel.Net(lambda: nn.Sequential(nn.Linear(6, 6), nn.Unflatten(1, (2, 3))))
    make_engine(net, clients(numbers(12, 6), ONE_HOT))


def _score(outputs: Tensor, y: Tensor) -> Tensor:
    return 1 - _distance(outputs, y)


def test_an_accuracy_outside_0_and_1_is_refused_before_the_first_round() -> None:
    federation = clients(numbers(12, 3), 5 + numbers(12, 1))
    with pytest.raises(ValueError, match=r"objective.correct: -.* in \[0, 1\].*clip"):
        make_engine(umbel.Net(lambda: nn.Linear(3, 1), Objective(_distance, _score)), federation)
    clipped = Objective(_distance, lambda o, y: _score(o, y).clamp(0, 1))
    make_engine(umbel.Net(lambda: nn.Linear(3, 1), clipped), federation)


def _right(outputs: Tensor, y: Tensor) -> Tensor:
    return outputs.argmax(1) == y


def _each(outputs: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(outputs, y, reduction="none")


def _hardest(outputs: Tensor, y: Tensor) -> Tensor:
    losses = _each(outputs, y)
    return losses * (losses >= losses.median())


def _contrastive(outputs: Tensor, y: Tensor) -> Tensor:
    near = normalize(outputs) @ normalize(outputs).t()
    return -(near.log_softmax(1) * (y[:, None] == y)).sum(1)


def _own(losses: Callable[[Tensor, Tensor], Tensor]) -> Objective:
    return Objective(losses, _right)


AMONG_OTHERS = {
    "the hardest half": _hardest,
    "contrasts": _contrastive,
    "sorted": lambda o, y: _each(o, y).sort().values,
    "a part of the sum": lambda o, y: _each(o, y) / len(y),
    "normalised by the batch": lambda o, y: _each(
        (o - o.mean(0)) / (1 + o.std(0, correction=0)), y
    ),
    "drawn": lambda o, y: _each(o + torch.rand_like(o), y),
}


@pytest.mark.parametrize("losses", AMONG_OTHERS.values(), ids=AMONG_OTHERS)
def test_a_loss_that_compares_examples_divides_or_draws_is_told_so(
    losses: Callable[[Tensor, Tensor], Tensor],
) -> None:
    net = umbel.Net(chain(6, 3), _own(losses))
    said = (
        r"objective\.losses: the value of an example depends on the others, or on chance: a loss "
        "that compares the examples of a batch, divides by their number or draws at random can't"
    )
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(net, clients(numbers(60, 6), np.arange(60) % 3))


def test_an_objective_of_ones_own_is_tried_on_few_examples_that_repeat_and_in_half_precision() -> (
    None
):
    few = Federation.from_arrays([(numbers(3, 6), np.arange(3))] * 2)
    make_engine(umbel.Net(chain(6, 3), _own(_each)), few)
    half = umbel.Net(lambda: nn.Linear(6, 3).bfloat16(), _own(_each))
    make_engine(half, clients(numbers(60, 6), np.arange(60) % 3))


def test_only_shapes_that_are_compared_each_with_each_are_called_so() -> None:
    column, row = (numbers(12), numbers(12, 1))
    error = Objective(lambda o, y: ((o - y) ** 2).flatten(1).mean(1), lambda o, y: o[:, 0] > y)
    said = r"outputs of shape \(2, 1\) and y of shape \(2,\) are compared each with each; give"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(umbel.Net(lambda: nn.Linear(4, 1), error), clients(numbers(12, 4), column))
    flat = Objective(lambda o, y: ((o[:, None] - y[:, 0]) ** 2).mean(1), lambda o, y: o > y[:, 0])
    net = umbel.Net(lambda: nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), flat)
    with pytest.raises(umbel.UsageError, match=r"\(2,\) and y of shape \(2, 1\) are compared each"):
        make_engine(net, clients(numbers(12, 4), row))


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


UNKNOWN = (
    r"Net: forward or the objective uses a tensor of shape \({}\) that requires gradients and is "
    r"no parameter of the module, .* put layers in nn\.ModuleList, .* nn\.ParameterList"
)


@pytest.mark.parametrize("head", [True, False])
def test_layers_in_a_list_which_would_never_be_trained_are_refused(head: bool) -> None:
    federation = clients(numbers(12, 4), LABELS)
    with pytest.raises(umbel.UsageError, match=UNKNOWN.format(r"8,|\d, \d")):
        make_engine(umbel.Net(partial(Listed, head=head)), federation)
    make_engine(umbel.Net(partial(Listed, known=True)), federation)


def test_what_an_objective_would_learn_is_refused_and_what_stays_is_taken() -> None:
    federation, weights = clients(numbers(12, 4), LABELS), nn.Parameter(torch.ones(3))
    net = umbel.Net(chain(4, 3), _own(lambda o, y: _each(o * weights, y)))
    with pytest.raises(umbel.UsageError, match=UNKNOWN.format("3,")):
        make_engine(net, federation)
    weights.requires_grad_(False)
    make_engine(net, federation)


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


class Field(nn.Module):
    """The slope of a learnt potential: forward differentiates by its inputs."""

    def __init__(self, inputs: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.potential = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.inputs = inputs

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
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


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_layer_that_torch_jit_made_is_taken() -> None:
    net = umbel.Net(lambda: nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.Linear(4, 3))))
    make_engine(net, clients(numbers(12, 4), LABELS))


class Doing(nn.Module):
    """A linear layer, and something that is done with what it gives."""

    def __init__(self, then: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.then = nn.Linear(4, 3), then

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self.layer(x))


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


def _missing(outputs: Tensor, y: Tensor) -> Tensor:  # noqa: ARG001
    return {"one": outputs}["weights"]


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (Objective(_missing, _right), r"objective\.losses raised KeyError: 'weights' for"),
        (Objective(_each, _missing), r"objective\.correct raised KeyError: 'weights' for"),
        (
            Objective(lambda o, y: _each(o @ o, y), _right),
            r"objective\.losses raised RuntimeError: mat1 and mat2 .* for",
        ),
        (
            Objective(lambda o, y: _each(o, y) / (1 // 0), _right),
            r"objective\.losses raised ZeroDivisionError: .* for",
        ),
    ],
)
def test_what_an_objective_raises_is_told_as_the_objectives(
    objective: Objective, said: str
) -> None:
    shapes = r" outputs of shape \(2, 3\) and y of shape \(2,\)$"
    with pytest.raises(umbel.UsageError, match=f"^{said}{shapes}"):
        make_engine(umbel.Net(chain(4, 3), objective), clients(numbers(12, 4), LABELS))


def test_a_loss_without_a_dimension_for_a_single_example_is_refused_by_its_shape() -> None:
    squeezed = Objective(lambda o, y: ((o - y) ** 2).squeeze(), lambda o, y: (o > y)[:, 0])
    said = r"objective\.losses: \(\) is not one value an example: \(1,\) for 1 example"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(umbel.Net(chain(4, 1), squeezed), clients(numbers(12, 4), numbers(12, 1)))


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


@pytest.mark.parametrize("objective", [CLASSIFICATION, _own(_each)])
def test_outputs_that_are_nan_from_the_start_are_refused_and_infinite_ones_are_not(
    objective: Objective,
) -> None:
    small, large = (clients(numbers(60, 4) * size, np.arange(60) % 3) for size in (1, 1e4))
    roots = umbel.Net(partial(Doing, lambda x: (x - 5).sqrt()), objective)
    said = (
        "the network's outputs: nan before any training: look for a division by 0 or the logarithm "
        "of a negative number in forward$"
    )
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(roots, small)
    overflown = umbel.Net(partial(Doing, lambda x: x.exp() / x.exp()), objective)
    with pytest.raises(umbel.UsageError, match=r"forward; and scale the inputs, which .*e\+04"):
        make_engine(overflown, large)
    first = torch.tensor([0.0, 0.0, -torch.inf])
    masked = umbel.Net(partial(Doing, lambda x: x + first), objective)
    make_engine(masked, clients(numbers(60, 4), np.arange(60) % 2))


def test_a_loss_that_is_nan_before_any_training_is_refused() -> None:
    net = umbel.Net(chain(4, 3), _own(lambda o, y: (o.gather(1, y[:, None])[:, 0] - 9).log()))
    said = r"^objective\.losses: nan for outputs of shape \(2, 3\) and y .* look for a division by"
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(net, clients(numbers(12, 4), LABELS))
