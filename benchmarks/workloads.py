"""W1 to W6: what the papers' methods ask clients to do, and at what size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.plain import PlainClients
from umbel.client.net import Net
from umbel.client.objectives import CLASSIFICATION, REGRESSION
from umbel.client.work import Gradient, LocalTraining, MeanLoss, Work
from umbel.data.federation import Federation
from umbel.engines import EngineSettings, make_engine
from umbel.engines.precision import bf16_units
from umbel.flow import Engine, Request, Rows
from umbel.networks import CNN, MLP, Model, ResNet18

Result: TypeAlias = tuple[Tensor, ...]


@dataclass(frozen=True)
class Contest:
    """One computation in umbel, with one or several settings, and in the plain loop."""

    name: str
    what: str
    ours: dict[str, Callable[[], Result]]  # by the engine's settings
    plain: Callable[[], Result]
    samples: int  # examples that go forward (and back, where there is training)
    flops: float
    tolerance: dict[str, float]  # distance, in units of the result's length
    goals: dict[str, float]  # times faster than the plain loop
    checked: tuple[dict[str, Callable[[], Result]], Callable[[], Result]] | None = None
    """The results to compare before timing; by default those of the timed computation."""


FULL, BF16 = "fp32", "bf16"


def contests(short: bool, device: str) -> dict[str, Callable[[], Contest]]:
    """How to set up each of them, by name."""
    return {
        "W1": partial(one_step, 32 if not short else 8, device),
        "W2 training": partial(lcfl_training, 200 if not short else 10, device),
        "W2 cross-loss": partial(lcfl_losses, 200 if not short else 20, device),
        "W3": partial(convolutions, "W3", (1, 28, 28), 20 if not short else 2, device, short),
        "W4": partial(convolutions, "W4", (3, 32, 32), 20 if not short else 2, device, short),
        "W5": partial(resnet, 1, 100 if short else 200, device),
        **{
            f"W6, {n} clients": partial(regression, n, device)
            for n in ((12, 1000) if short else (12, 100, 1000, 10_000, 100_000))
        },
    }


def one_step(clients: int, device: str) -> Contest:
    """CFL-GP's round: a step from one of four models each, and all gradients at one model."""
    federation = images([500] * clients, (784,))
    net, build = classifier(MLP(), (784,))
    step, gradient = LocalTraining(lr=0.1, steps=1, batch_size=64), Gradient(64)
    models = torch.stack([net.new(seed) for seed in range(4)])
    index = torch.arange(clients) % 4
    plain = PlainClients(build, federation, device, "classes")

    def ours(engine: Engine) -> Result:
        update = ask(engine, step, clients, theta=Rows(models, index))["update"]
        one = Rows(models, torch.zeros(clients, dtype=torch.long))
        return update, ask(engine, gradient, clients, theta=one)["gradient"]

    def loop() -> Result:
        own = list(models[index].to(device))
        updates = plain.train(step, 0.1, own)
        return updates.cpu(), plain.gradients(gradient, own[0]).cpu()

    samples = 2 * 64 * clients
    return Contest(
        "W1",
        f"MLP 784-200-10, {clients} clients: one step on 64 examples, one gradient",
        {label: partial(ours, engine) for label, engine in engines(net, federation, device)},
        loop,
        samples,
        3 * forward_flops(net, (784,)) * samples,
        {FULL: 1e-4, BF16: 0.1},
        {FULL: 2.7},
    )


def lcfl_training(clients: int, device: str) -> Contest:
    """LCFL's local training."""
    federation = images([200] * clients, (784,))
    work = LocalTraining(lr=0.02, epochs=10, batch_size=20)
    what = f"MLP 784-200-10, {clients} clients x 200 examples, batch 20, 10 epochs"
    samples = 2000 * clients
    return training("W2 training", what, MLP(), federation, work, device, samples, {FULL: 3.5})


def lcfl_losses(clients: int, device: str) -> Contest:
    """LCFL's evidence: every model on every client."""
    federation = images([200] * clients, (784,))
    net, build = classifier(MLP(), (784,))
    models = torch.stack([net.new(seed) for seed in range(clients)])
    plain = PlainClients(build, federation, device, "classes")
    samples = 200 * clients**2

    def ours(engine: Engine) -> Result:
        return (ask(engine, MeanLoss(), clients, models=models)["losses"],)

    return Contest(
        "W2 cross-loss",
        f"loss of {clients} such models on {clients} clients x 200 examples",
        {label: partial(ours, engine) for label, engine in engines(net, federation, device)},
        lambda: (plain.losses(list(models.to(device)), 200).cpu(),),
        samples,
        forward_flops(net, (784,)) * samples,
        {FULL: 1e-4, BF16: 0.1},
        {FULL: 5.0},
    )


def convolutions(
    name: str, shape: tuple[int, ...], clients: int, device: str, short: bool
) -> Contest:
    """FLACC's local training, for clients of unequal size."""
    sizes = np.linspace(200, 800, clients).astype(int) // (4 if short else 1)
    epochs = 1 if short else 5
    work = LocalTraining(lr=0.05, epochs=epochs, batch_size=32)
    size = "x".join(map(str, shape))
    what = (
        f"CNN 5x5 32/64, 512 on {size}, {clients} clients of {sizes[0]} to {sizes[-1]} examples, "
    )
    what += f"batch 32, {epochs} epochs"
    samples = epochs * int(sizes.sum())
    goals = {FULL: 1.25, BF16: 2.2}
    federation = images(sizes, shape)
    return training(name, what, CNN(), federation, work, device, samples, goals)


def resnet(clients: int, examples: int, device: str) -> Contest:
    """A deep network; a client's cost does not depend on how many there are."""
    federation = images([examples] * clients, (3, 32, 32))
    work = LocalTraining(lr=0.05, epochs=1, batch_size=100)
    what = (
        f"ResNet-18 with group norm on 3x32x32, {clients} client x {examples} examples, batch 100"
    )
    samples = clients * examples
    goals = {FULL: 1.0, BF16: 1.0}
    return training("W5", what, ResNet18(), federation, work, device, samples, goals)


def regression(clients: int, device: str) -> Contest:
    """Linear regression with two parameters: nothing but overhead."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients, 10, 2)).astype(np.float32)
    y = x.sum(2, keepdims=True)
    federation = Federation.from_arrays(list(zip(x, y, strict=True)), test_fraction=0.0)
    build = partial(nn.Linear, 2, 1, bias=False)
    net, work = Net(build, REGRESSION), LocalTraining(lr=0.1, epochs=1, batch_size="all")
    engine = make_engine(net, federation, EngineSettings(device=device))
    theta = net.new(0)
    plain = PlainClients(build, federation, device, "numbers")
    rows = Rows(theta[None], torch.zeros(clients, dtype=torch.long))
    return Contest(
        f"W6, {clients} clients",
        f"linear regression, 2 parameters, {clients} clients: one step on 10 points",
        {FULL: partial(updates, engine, work, clients, rows)},
        lambda: (plain.train(work, 0.1, [theta.to(device)] * clients).cpu(),),
        10 * clients,
        3 * 4.0 * 10 * clients,
        {FULL: 1e-4},
        {FULL: 120.0} if clients == 1000 else {},
    )


def training(
    name: str,
    what: str,
    model: MLP | CNN | ResNet18,
    federation: Federation,
    work: LocalTraining,
    device: str,
    samples: int,
    goals: dict[str, float],
) -> Contest:
    """Local training of every client from one model.

    Convolutions are compared after one step, and to a hundredth: where a rounding error turns a
    maximum or a ReLU to its other side, the gradient leaps, and the weights part from there on.
    The plain loop against itself does the same, begun at weights that differ in the last bit.
    """
    clients = federation.num_clients
    net, build = classifier(model, federation.input_shape)
    theta = net.new(0)
    rows = Rows(theta[None], torch.zeros(clients, dtype=torch.long))
    plain = PlainClients(build, federation, device, "classes")
    every = list(engines(net, federation, device))

    def ours(done: LocalTraining) -> dict[str, Callable[[], Result]]:
        return {label: partial(updates, engine, done, clients, rows) for label, engine in every}

    def loop(done: LocalTraining) -> Result:
        return (plain.train(done, done.lr, [theta.to(device)] * clients).cpu(),)

    smooth = isinstance(model, MLP)
    checked = work if smooth else replace(work, steps=1)
    return Contest(
        name,
        what,
        ours(work),
        partial(loop, work),
        samples,
        3 * forward_flops(net, federation.input_shape) * samples,
        {FULL: 1e-3 if smooth else 0.02, BF16: 0.2},
        goals,
        (ours(checked), partial(loop, checked)),
    )


def engines(net: Net, federation: Federation, device: str) -> Iterator[tuple[str, Engine]]:
    """One for each precision that the device has products of, by its label."""
    yield FULL, make_engine(net, federation, EngineSettings(device=device))
    if device != "cpu" or bf16_units():
        settings = EngineSettings(device=device, precision="bf16")
        yield BF16, make_engine(net, federation, settings)


def updates(engine: Engine, work: Work, clients: int, theta: Rows) -> Result:
    """(N, P) of all clients, each from its row of theta."""
    return (ask(engine, work, clients, theta=theta)["update"],)


def forward_flops(net: Net, shape: tuple[int, ...]) -> float:
    """Floating-point operations of one example on its way forward."""
    module, x = net.module(net.new(0)), torch.zeros(1, *shape)
    with FlopCounterMode(display=False) as counted, torch.no_grad():
        module(x)
    return float(counted.get_total_flops())


def ask(engine: Engine, work: Work, clients: int, **given: Tensor | Rows) -> dict[str, Tensor]:
    """All clients' replies; client n works under seed n."""
    shared = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    each = {name: value for name, value in given.items() if isinstance(value, Rows)}
    everyone = torch.arange(clients)
    return dict(engine.send(Request(work, everyone, range(clients), shared, each)).columns)


def classifier(model: Model, shape: tuple[int, ...]) -> tuple[Net, Callable[[], nn.Module]]:
    """The network, and the function that builds its module."""
    build = partial(model.build, shape, 10)
    return Net(build, CLASSIFICATION), build


def images(sizes: Sequence[int] | np.ndarray, shape: tuple[int, ...]) -> Federation:
    """Random images of ten classes."""
    rng = np.random.default_rng(0)
    shards = [
        (rng.random((int(size), *shape), dtype=np.float32), rng.integers(0, 10, int(size)))
        for size in sizes
    ]
    return Federation.from_arrays(shards, test_fraction=0.0)
