"""Every network by name trains under both engines, with equal results where it can be batched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.federations import blobs
from umbel.algorithms import FedAvg
from umbel.checks import UsageError
from umbel.client.batches import IGNORED
from umbel.client.net import Net
from umbel.client.work import Evaluation, Gradient, LocalTraining, MeanLoss, Work
from umbel.data.federation import Federation
from umbel.data.scenarios.channel_state import ChannelState
from umbel.data.sources import Sources
from umbel.engines import Sequential, Vectorised
from umbel.engines.batchable import why_not_batchable
from umbel.flow import Engine, Request, Rows
from umbel.networks import (
    MODELS,
    CharLSTM,
    CharTransformer,
    CSIAutoencoder,
    Model,
    TextClassifier,
)
from umbel.networks.autoencoder import Norm
from umbel.result.run import Run

SHAPES = {"cnn-1d": (1, 24), "lenet": (1, 16, 16), "resnet18": (1, 2, 2)}

OF_SYMBOLS = ("char-lstm", "char-transformer", "text-classifier")

OF_IMAGES = [
    pytest.param(name, marks=pytest.mark.thorough if name == "resnet18" else ())
    for name in MODELS
    if name not in ("csi-autoencoder", *OF_SYMBOLS)
]


def updates(net: Net, engines: Sequence[Engine], steps: int = 2) -> list[Tensor]:
    """What clients send after training, by each engine."""
    theta = Rows(net.new(0)[None], torch.tensor([0, 0]))
    work = LocalTraining(batch_size=4, lr=0.05, steps=steps)
    asked = Request(work, torch.tensor([0, 1]), [3, 4], {}, {"theta": theta})
    return [engine.send(asked).columns["update"] for engine in engines]


@pytest.mark.parametrize("name", OF_IMAGES)
def test_engines_agree_on_every_network(name: str) -> None:
    shape = SHAPES.get(name, (1, 8, 8))
    federation = blobs((5, 7), shape=shape)
    net = Net(lambda: MODELS[name]().build(shape, 3).double())
    assert why_not_batchable(net, federation) is None
    in_place = net.using("in-place")
    engines = [Sequential(net, federation), Sequential(in_place, federation)]
    one_by_one, *others = updates(net, [*engines, Vectorised(net, federation)], steps=1)
    assert one_by_one.isfinite().all()
    assert one_by_one.abs().max() > 0
    for found in others:
        torch.testing.assert_close(found, one_by_one, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_engines_agree_on_the_autoencoder_whose_batch_norm_can_not_be_batched(norm: Norm) -> None:
    recipe = ChannelState(clients=2, examples=8, test_fraction=0.25)
    federation = recipe.build(0, Sources(None, Path()))

    def build() -> nn.Module:
        return CSIAutoencoder(code=4, norm=norm).build((2, 32, 32), 2048).double()

    net = Net(build, federation.objective)
    engines: list[Engine] = [Sequential(net.using("in-place"), federation)]
    if norm == "group":
        assert why_not_batchable(net, federation) is None
        engines.append(Vectorised(net, federation))
    else:
        assert "batch normalisation" in str(why_not_batchable(net, federation))
    expected, *others = updates(net, [Sequential(net, federation), *engines])
    assert expected.isfinite().all()
    assert expected.abs().max() > 0
    for found in others:
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


SEQUENCE_WORKS: list[Work] = [
    LocalTraining(batch_size=4, epochs=2, lr=0.05),
    Gradient(batch_size=4),
    MeanLoss(),
    Evaluation(metrics=("perplexity",)),
]


def sequences(sizes: Sequence[int], length: int = 6, symbols: int = 5) -> Federation:
    """Clients of unequal size, with sequences of unequal length, one of them all padding."""
    rng, shards = np.random.default_rng(0), []
    for size in sizes:
        x, y = rng.integers(0, symbols, (2, size, length))
        ends = rng.integers(1, length + 1, size)
        ends[-1] = 0
        beyond = np.arange(length) >= ends[:, None]
        shards.append((np.where(beyond, -1, x), np.where(beyond, IGNORED, y)))
    return Federation.from_arrays(shards, shards, num_classes=symbols)


@pytest.mark.parametrize("work", SEQUENCE_WORKS, ids=str)
@pytest.mark.parametrize("model", [CharLSTM(4, 6), CharTransformer(8, 2, 2, 12)], ids=str)
def test_engines_agree_on_sequences_of_unequal_length(model: Model, work: Work) -> None:
    sizes = (5, 11, 2)
    federation = sequences(sizes)
    net = Net(lambda: model.build((6,), 5).double())
    theta = Rows(torch.stack([net.new(0), net.new(1)]), torch.tensor([0, 1, 0]))
    shared = {"models": theta.table}
    asked = Request(work, torch.arange(len(sizes)), [3, 4, 5], shared, {"theta": theta})
    engines: list[Engine] = [Sequential(net.using("in-place"), federation)]
    if isinstance(model, CharTransformer):
        engines += [Vectorised(net, federation), Vectorised(net, federation, memory_mb=1e-6)]
    expected = Sequential(net, federation).send(asked)
    for engine in engines:
        for name, column in engine.send(asked).columns.items():
            torch.testing.assert_close(column, expected.columns[name], rtol=1e-9, atol=1e-10)
            assert column.isfinite().all()


@pytest.mark.parametrize("adapters", [0, 2])
def test_engines_agree_on_texts_of_unequal_length(adapters: int, tmp_path: Path) -> None:
    tiny = pytest.importorskip("tests.networks.tiny")
    recipe = TextClassifier(encoder=str(tiny.encoder(tmp_path / "tiny")), adapters=adapters)
    net = Net(lambda: recipe.build((9,), 3).double())
    federation = texts((5, 7), places=9)
    engines = [Sequential(net, federation), Sequential(net.using("in-place"), federation)]
    one_by_one, in_place = updates(net, engines)
    assert one_by_one.abs().max() > 0
    torch.testing.assert_close(in_place, one_by_one, rtol=1e-9, atol=1e-10)
    padded = texts((5, 7), places=9, more=4)
    wider = Net(lambda: recipe.build((13,), 3).double())
    (same,) = updates(wider, [Sequential(wider, padded)])
    torch.testing.assert_close(same, one_by_one, rtol=1e-9, atol=1e-10)


def texts(sizes: Sequence[int], places: int, more: int = 0) -> Federation:
    """Clients with token ids of texts of unequal lengths, and so many places of padding more."""
    rng = np.random.default_rng(0)
    clients = []
    for size in sizes:
        x = rng.integers(1, 14, (size, places))
        x[np.arange(places) >= rng.integers(2, places, (size, 1))] = 0
        clients.append((np.pad(x, ((0, 0), (0, more))), rng.integers(0, 3, size)))
    return Federation.from_arrays(clients, num_classes=3, test_fraction=0.0)


@pytest.mark.parametrize("engine", [Sequential, Vectorised])
def test_a_client_none_of_whose_test_labels_counts_has_no_score(engine: Any) -> None:
    x, y = np.zeros((2, 4, 6), dtype=np.int64)
    nothing = np.full_like(y, IGNORED)
    federation = Federation.from_arrays([(x, y)] * 2, [(x, y), (x, nothing)], num_classes=5)
    net = Net(lambda: CharTransformer(8, 2, 2, 12).build((6,), 5))
    run = Run(FedAvg(), federation, net, engine=engine(net, federation))
    ((state, record),) = run.rounds(1)
    scores = run.scores(state, run.context(0, 1))
    assert np.isnan(scores.loss).tolist() == np.isnan(scores.accuracy).tolist() == [False, True]
    assert record.worst == record.accuracy
    with pytest.raises(UsageError, match="client 1: training labels: 'all -100' is not a label"):
        Federation.from_arrays([(x, y), (x, nothing)], num_classes=5)
