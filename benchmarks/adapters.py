"""The cost of a request beyond the backbone's passes: `python -m benchmarks.adapters`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.measure import Timing, pin
from benchmarks.workloads import ask
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.engines import Sequential
from umbel.flow import Rows
from umbel.networks import TextClassifier

SIZES = np.linspace(30, 90, 6).astype(int)
"""Examples of the clients."""

LENGTHS, CLASSES, WORDS, PAD = (5, 24), 20, 30_522, 0
"""Tokens of a text, its labels, the vocabulary, and the id of padding."""

LOCAL = LocalTraining(lr=0.05, epochs=1, batch_size=16)


def encoder(folder: Path) -> str:
    """A sentence encoder of 22 million random values, which takes the same time as any other."""
    from transformers import BertConfig, BertModel, logging

    logging.disable_progress_bar()
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        pad_token_id=PAD,
    )
    BertModel(config).save_pretrained(folder)
    return str(folder)


def texts() -> Federation:
    """Clients with texts of unequal lengths, padded to the longest."""
    rng, shards = np.random.default_rng(0), []
    for size in SIZES:
        x = rng.integers(1, WORDS, (size, LENGTHS[1]))
        ends = rng.integers(LENGTHS[0], LENGTHS[1] + 1, size)
        x[np.arange(LENGTHS[1]) >= ends[:, None]] = PAD
        shards.append((x, rng.integers(0, CLASSES, size)))
    return Federation.from_arrays(shards, test_fraction=0.0, num_classes=CLASSES)


def passes(net: Net, federation: Federation, theta: Tensor) -> None:
    """Only the forward and backward passes of every mini-batch in the request."""
    module = net.module(theta).train()
    weights = [p for p in module.parameters() if p.requires_grad]
    for client in range(federation.num_clients):
        x, y = federation.train.of(client)
        for step in LOCAL.batching.plan(len(x), client):
            rows = torch.from_numpy(step[step >= 0])
            torch.autograd.grad(cross_entropy(module(x[rows]), y[rows]), weights)


def compared(repeats: int, folder: Path) -> tuple[Net, Timing, Timing]:
    """Seconds of a request to all clients, and of the passes in it, in turns."""
    federation, recipe = texts(), TextClassifier(encoder=encoder(folder))
    net = Net(lambda: recipe.build((LENGTHS[1],), CLASSES))
    engine = Sequential(net.using("in-place"), federation)
    theta = net.new(0)
    rows = Rows(theta[None], torch.zeros(len(SIZES), dtype=torch.long))
    taken: tuple[list[float], list[float]] = [], []
    for _ in range(repeats):
        began = perf_counter()
        ask(engine, LOCAL, len(SIZES), theta=rows)
        between = perf_counter()
        passes(net, federation, theta)
        taken[0].append(between - began)
        taken[1].append(perf_counter() - between)
    return net, Timing.of(taken[0]), Timing.of(taken[1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Two lines, and the ratio of their times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adapters", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(arguments)
    pin()
    with tempfile.TemporaryDirectory() as folder:
        net, request, own = compared(given.repeats, Path(folder))
    examples = int(SIZES.sum())
    for what, timing in (("request", request), ("forward and back alone", own)):
        sys.stdout.write(
            f"{what}: {timing.median:.2f} s ({timing.low:.2f} to {timing.high:.2f}), "
            f"{examples / timing.median:.0f} examples a second\n"
        )
    sys.stdout.write(
        f"{net}: the backbone's own passes are {own.median / request.median:.0%} of a request\n"
    )


if __name__ == "__main__":
    main()
