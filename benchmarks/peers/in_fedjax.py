"""Rounds of FedJAX's FedAvg with JAX."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import fedjax
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.tasks import (
    CLASSES,
    EVALUATE_EVERY,
    EVALUATED_AT_ONCE,
    ROUNDS,
    Task,
)
from benchmarks.peers.watch import Watch

WIDTHS = {"mlp": [784, 200, CLASSES], "linear": [20, CLASSES], "cnn": [3136, 512, CLASSES]}
"""The widths of the linear layers, the input's first."""

CHANNELS = {"cnn": [1, 32, 64]}


def first(network: str) -> Any:
    """Weights drawn as PyTorch draws them: uniformly, by the number of inputs."""
    rng = np.random.default_rng(0)

    def layer(inputs: int, *shape: int) -> Any:
        bound = inputs**-0.5
        return [rng.uniform(-bound, bound, size).astype(np.float32) for size in (shape, shape[-1:])]

    channels, widths = CHANNELS.get(network, []), WIDTHS[network]
    return {
        "convolutions": [layer(25 * i, 5, 5, i, o) for i, o in pairwise(channels)],
        "linear": [layer(i, i, o) for i, o in pairwise(widths)],
    }


def outputs(weights: Any, x: Any) -> Any:
    """The network's outputs (B, classes); images are (B, channels, height, width)."""
    if weights["convolutions"]:
        x = jnp.moveaxis(x, 1, 3)
    for kernel, bias in weights["convolutions"]:
        sides = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=sides)
        pool = (1, 2, 2, 1)
        x = jax.lax.reduce_window(jax.nn.relu(x + bias), -jnp.inf, jax.lax.max, pool, pool, "VALID")
    x = x.reshape(len(x), -1)
    *hidden, (matrix, bias) = weights["linear"]
    for inner, offset in hidden:
        x = jax.nn.relu(x @ inner + offset)
    return x @ matrix + bias


def loss(weights: Any, batch: Any, rng: Any) -> Any:  # noqa: ARG001
    """The mean cross-entropy."""
    said = jax.nn.log_softmax(outputs(weights, batch["x"]))
    return -jnp.mean(jnp.take_along_axis(said, batch["y"][:, None], 1))


def run(task: Task, file: Path, watch: Watch) -> None:
    """All rounds; the last accuracy is that of all test examples."""
    train, test = task.clients_of(file)
    named = {str(n).encode(): {"x": x, "y": y} for n, (x, y) in enumerate(train)}
    data = fedjax.InMemoryFederatedData(named)
    x, y = (np.concatenate(part) for part in zip(*test, strict=True))
    sgd = fedjax.optimizers.sgd
    batching = fedjax.ShuffleRepeatBatchHParams(batch_size=task.batch, num_epochs=task.epochs)
    method = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss), sgd(task.lr), sgd(1.0), batching
    )
    state, predict = method.init(first(task.network)), jax.jit(outputs)
    cohorts = fedjax.client_samplers.UniformGetClientSampler(data, task.cohort, seed=0)
    watch.start()
    for number in range(1, ROUNDS + 1):
        state, _ = method.apply(state, cohorts.sample())
        jax.block_until_ready(state.params)
        if number % EVALUATE_EVERY:
            watch.lap()
            continue
        right = 0
        for start in range(0, len(y), EVALUATED_AT_ONCE):
            part = slice(start, start + EVALUATED_AT_ONCE)
            right += int((predict(state.params, x[part]).argmax(1) == y[part]).sum())
        watch.lap(right / len(y))
