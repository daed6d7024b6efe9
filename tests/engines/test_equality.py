"""The batched engine gives what the sequential one gives: every work, dtype and size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import umbel.client.work
from tests.federations import SIZES, blobs, mlp
from umbel.client.kernel_choice import KernelName
from umbel.client.net import Net
from umbel.client.objectives import REGRESSION
from umbel.client.optimizers import SGD, Adam
from umbel.client.work import (
    MEMORY,
    AlignedTraining,
    AnchoredTraining,
    BestShares,
    ChooseByLoss,
    ChooseJointly,
    Description,
    Evaluation,
    Feature,
    Gradient,
    JointScore,
    LocalTraining,
    MeanLoss,
    MetaTraining,
    MixtureEvaluation,
    MixtureTraining,
    MixtureWeights,
    ModelScores,
    MoreauTraining,
    PersonalEvaluation,
    PersonalTraining,
    PrincipalVectors,
    PrototypeTraining,
    Quantised,
    Routed,
    SharedTraining,
    TrainAndGradient,
    Work,
    parted,
)
from umbel.data.federation import Federation
from umbel.engines import Sequential, Vectorised
from umbel.flow import Engine, Replies, Request, Rows

WORKS: list[Work] = [
    LocalTraining(batch_size=4, epochs=2),
    LocalTraining(batch_size=4, epochs=2, proximal=0.5),
    LocalTraining(batch_size=100, epochs=3),
    LocalTraining(batch_size="all", epochs=3),
    LocalTraining(batch_size=4, steps=7),
    LocalTraining(batch_size=4, drop_last=True),
    LocalTraining(batch_size=4, optimizer=SGD(momentum=0.9, weight_decay=0.01)),
    LocalTraining(batch_size=4, lr=0.01, optimizer=Adam(weight_decay=0.01)),
    AnchoredTraining(LocalTraining(batch_size=4, epochs=2, optimizer=SGD(momentum=0.5)), 0.7),
    AlignedTraining(LocalTraining(batch_size=4, epochs=2, optimizer=SGD(momentum=0.5)), 2.0, 0.5),
    AlignedTraining(LocalTraining(batch_size=8, steps=5), 0.5, 0.5),
    Gradient(),
    Gradient(batch_size=4),
    MeanLoss(),
    MeanLoss(max_examples=8),
    ModelScores(),
    ModelScores("loss"),
    ChooseByLoss(LocalTraining(batch_size=4, epochs=2)),
    ChooseByLoss(LocalTraining(batch_size=4), "mini-batch"),
    ChooseByLoss(Gradient()),
    ChooseByLoss(Gradient(), "mini-batch"),
    TrainAndGradient(LocalTraining(batch_size=4)),
    TrainAndGradient(LocalTraining(batch_size=4), Gradient(6)),
    Description(3),
    Evaluation(),
    Evaluation(metrics=("log-loss", "macro-f1", "auroc")),
    Quantised(Gradient(), 2),
    Feature(LocalTraining(batch_size=4)),
    JointScore(LocalTraining(batch_size=4), 0.5),
    ChooseJointly(JointScore(LocalTraining(batch_size=4), 0.9, "euclidean", "literal", "sum")),
    PrincipalVectors(3, 6),
    PrincipalVectors(2, 6, num_classes=3),
    BestShares(),
    MixtureWeights(),
    MixtureTraining(LocalTraining(batch_size=4, epochs=2)),
    MixtureEvaluation(),
    MixtureEvaluation(metrics=("log-loss", "macro-f1", "auroc")),
    MoreauTraining(LocalTraining(batch_size=4, lr=0.01), 15.0, personal_steps=3, personal_lr=0.05),
    PersonalTraining(LocalTraining(batch_size=4, epochs=2)),
    PersonalTraining(LocalTraining(batch_size=4, optimizer=SGD(weight_decay=0.01)), ("*bias",)),
    PersonalEvaluation("test"),
    SharedTraining(LocalTraining(batch_size=4, epochs=2), ("*bias",)),
    MetaTraining(LocalTraining(batch_size=4, epochs=2), 0.1, "first-order", 0.01),
    MetaTraining(LocalTraining(batch_size=4, epochs=2), 0.1, "hessian-free", 0.01),
    MetaTraining(LocalTraining(batch_size=4, epochs=2), 0.1, "exact", 0.01),
]

OF_CLASSES = ("num_classes", "metrics", "outputs")
OF_TARGETS = [
    w
    for w in WORKS
    if not (isinstance(w, AlignedTraining) or any(getattr(w, name, None) for name in OF_CLASSES))
]

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def request(work: Work, net: Net, clients: Sequence[int]) -> Request:
    models = torch.stack([net.new(seed) for seed in range(3)])
    index = torch.tensor([client % 3 for client in clients])
    seeds = [100 + client for client in clients]
    weights = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]], dtype=net.dtype)
    each = {"theta": Rows(models, index), MEMORY: Rows(weights, index)}
    each["weights"] = each[MEMORY]
    each["anchor"] = Rows(models.roll(1, 0), index)
    if isinstance(work, PersonalTraining | PersonalEvaluation):
        each[MEMORY] = Rows(torch.stack([models.roll(1, 0), models.roll(2, 0)], 1), index)
    if isinstance(work, SharedTraining):
        for name, places in zip(("theta", MEMORY), parted(net.layout, work.kept), strict=True):
            each[name] = Rows(models.index_select(1, places), index)
    each["given"] = Rows(torch.tensor([-1, 2]), torch.tensor([client % 2 for client in clients]))
    shared = {"models": models, "moves": models.roll(1, 0), "coordinates": torch.tensor([1, 0])}
    shared["shares"] = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.0, 1.0]], dtype=net.dtype)
    shared["prototypes"] = models[0][net.layout.head[0]].roll(1, 0)
    return Request(work, torch.tensor(clients), seeds, shared, each)


def assert_same(found: Replies, expected: Replies, tolerance: float) -> None:
    assert found.clients.tolist() == expected.clients.tolist()
    assert set(found.columns) == set(expected.columns)
    for name, column in expected.columns.items():
        torch.testing.assert_close(
            found.columns[name], column, rtol=tolerance, atol=tolerance, equal_nan=True, msg=name
        )


def fast(net: Net, federation: Federation, memory_mb: float | None = None) -> list[Engine]:
    """Every engine but the reference, `Sequential` with the general kernel."""
    engines: list[Engine] = [
        Vectorised(net, federation, memory_mb=memory_mb),
        Sequential(net.using("in-place"), federation),
    ]
    if net.is_dense:
        dense = net.using("dense")
        engines += [Vectorised(dense, federation, memory_mb=memory_mb)]
        engines += [Sequential(dense, federation)]
    return engines


def test_every_kind_of_work_is_listed_here() -> None:
    # `Routed` is for networks with adapters: tests/client/test_routing.py. `PrototypeTraining`,
    # with a model as its memory, is in tests/algorithms/test_fedproto.py.
    kinds = {
        k
        for k in vars(umbel.client.work).values()
        if isinstance(k, type) and issubclass(k, Work) and k is not Work
    }
    assert {type(work) for work in WORKS} == kinds - {Routed, PrototypeTraining}


@pytest.mark.parametrize(
    ("work", "dtype"), [(WORKS[0], torch.float32), *((work, torch.float64) for work in WORKS)]
)
def test_engines_agree_for_clients_of_unequal_size(work: Work, dtype: torch.dtype) -> None:
    net, federation = mlp(dtype=dtype), blobs()
    asked = request(work, net, [0, 1, 2, 3, 5])
    expected = Sequential(net, federation).send(asked)
    for engine in fast(net, federation):
        assert_same(engine.send(asked), expected, TOLERANCE[dtype])
    for column in expected.columns.values():
        assert column.isfinite().all()


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_the_size_of_a_chunk_changes_nothing(work: Work) -> None:
    net, federation = mlp(dtype=torch.float64), blobs()
    asked = request(work, net, [4, 0, 3, 1])
    for same in (net, net.using("dense")):
        one_by_one = Vectorised(same, federation, memory_mb=1e-6)
        assert [len(chunk) for chunk in one_by_one.chunks(asked)] == [1, 1, 1, 1]
        assert_same(one_by_one.send(asked), Vectorised(same, federation).send(asked), 1e-12)


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_a_client_gives_the_same_whoever_else_is_asked(work: Work) -> None:
    net, federation = mlp(dtype=torch.float64).using("dense"), blobs()
    engine = Vectorised(net, federation)
    together = engine.send(request(work, net, range(len(SIZES))))
    for client in range(len(SIZES)):
        alone = engine.send(request(work, net, [client]))
        assert_same(alone, together.pick(torch.tensor([client])), 1e-12)


@settings(max_examples=8)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    work=st.sampled_from(WORKS),
    seed=st.integers(0, 100),
)
def test_engines_agree_for_any_sizes(sizes: list[int], work: Work, seed: int) -> None:
    net, federation = mlp(dtype=torch.float64), blobs(sizes, seed=seed)
    asked = request(work, net, range(len(sizes)))
    expected = Sequential(net, federation).send(asked)
    for engine in fast(net, federation):
        assert_same(engine.send(asked), expected, 1e-10)


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_the_size_of_a_plan_is_known_without_making_it(work: Work) -> None:
    assert work.batching.shape is not None
    for size in (1, 3, 4, 17):
        assert work.batching.shape(size) == work.batching.plan(size, 0).shape


def of_inputs(work: Work, number: int) -> Work:
    """The work for examples of so many values."""
    return replace(work, num_inputs=number) if isinstance(work, PrincipalVectors) else work


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_engines_agree_on_convolutions(work: Work) -> None:
    net = Net(
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1),
            nn.GroupNorm(1, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(12, 3),
        ).double()
    )
    federation = blobs(shape=(2, 4, 4))
    asked = request(of_inputs(work, 32), net, [0, 1, 3])
    expected = Sequential(net, federation).send(asked)
    for engine in fast(net, federation):
        assert_same(engine.send(asked), expected, 1e-10)


@pytest.mark.parametrize("work", OF_TARGETS, ids=str)
def test_engines_agree_on_regression(work: Work) -> None:
    net = Net(lambda: nn.Linear(2, 1).double(), REGRESSION)
    x = torch.randn(20, 2, generator=torch.manual_seed(0))
    y = x.sum(1, keepdim=True)
    federation = Federation.from_arrays(
        [(x[:7], y[:7]), (x[7:], 2 * y[7:])], [(x[:2], y[:2]), (x[:0], y[:0])]
    )
    asked = request(of_inputs(work, 2), net, [0, 1])
    expected = Sequential(net, federation).send(asked)
    for engine in fast(net, federation):
        assert_same(engine.send(asked), expected, 1e-10)


def test_a_client_without_test_examples_evaluates_to_nothing() -> None:
    net, x = mlp(), torch.zeros(3, 6)
    y = torch.tensor([0, 1, 2])
    federation = Federation.from_arrays([(x, y), (x, y)], [(x, y), (x[:0], y[:0])])
    for engine in (Sequential(net, federation), *fast(net, federation)):
        reply = engine.send(request(Evaluation(), net, [0, 1]))
        assert reply.columns["num_examples"].tolist() == [3, 0]
        assert reply.columns["loss"][1] == 0


def test_one_clients_divergence_does_not_reach_another_through_padding() -> None:
    net = Net(lambda: nn.Linear(1, 1), REGRESSION)
    x = torch.linspace(0, 1, 9)[:, None]
    federation = Federation.from_arrays([(x * 1e30, x), (x[:5], x[:5])], test_fraction=0.0)
    for engine in fast(net, federation):
        reply = engine.send(request(LocalTraining(batch_size=4), net, [0, 1]))
        assert not reply.columns["update"][0].isfinite().all()
        assert reply.columns["update"][1].isfinite().all()


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the size of the largest tensor that any operation made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.megabytes = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.megabytes = max(self.megabytes, result.nbytes / 2**20)
        return result


@pytest.mark.parametrize("kernel", ["general", "dense"])
@pytest.mark.parametrize("work", [Evaluation(), MeanLoss(), Gradient(batch_size=2)], ids=str)
def test_the_working_set_stays_within_its_bound(work: Work, kernel: KernelName) -> None:
    net, federation = mlp(500, 10), blobs([3] * 300, shape=(500,), num_classes=10)
    asked = request(work, net, range(300))

    def largest(memory_mb: float) -> float:
        engine = Vectorised(net.using(kernel), federation, memory_mb=memory_mb)
        with Largest() as made:
            engine.send(asked)
        return float(made.megabytes)

    replies = 300 * net.layout.num_values * 4 / 2**20 if isinstance(work, Gradient) else 0
    assert largest(1) <= max(1, replies)
    assert largest(1000) > 3


def test_replies_are_on_the_cpu_and_carry_no_graph() -> None:
    net, federation = mlp(), blobs()
    for engine in (Sequential(net, federation), *fast(net, federation)):
        update = engine.send(request(LocalTraining(), net, [0])).columns["update"]
        assert update.device.type == "cpu"
        assert not update.requires_grad


@pytest.mark.parametrize("work", [LocalTraining(epochs=5), MeanLoss()], ids=str)
def test_one_large_client_makes_no_padding_for_many_small_ones(work: Work) -> None:
    net = Net(lambda: nn.Linear(2, 2))
    federation = blobs([90_000, 20, *(5 for _ in range(200))], shape=(2,), num_classes=2)
    engine = Vectorised(net, federation)
    chunks = list(engine.chunks(request(work, net, range(202))))
    assert len(chunks[0]) <= 2
    assert sorted(torch.cat(chunks).tolist()) == list(range(202))
    assert len(chunks) < 4


def test_clients_of_similar_size_stay_in_one_chunk() -> None:
    net, sizes = mlp(), [60, 45, 40, 31, 30]
    (chunk,) = Vectorised(net, blobs(sizes)).chunks(request(LocalTraining(), net, range(5)))
    assert chunk.tolist() == [0, 1, 2, 3, 4]
