"""The plain loop beside umbel does the same work, and what was measured is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from benchmarks.measure import difference
from benchmarks.peers import loops
from benchmarks.peers.in_umbel import method_of
from benchmarks.peers.modules import BUILD, started
from benchmarks.peers.table import markdown
from benchmarks.peers.tasks import COMPONENTS, TASKS, Task
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from tests.federations import each_its_own
from umbel.client.net import Net
from umbel.client.work import MEMORY
from umbel.data.federation import Federation
from umbel.engines import make_engine
from umbel.flow import Request

SEED, EXAMPLES = 3, 50
GENERATOR = torch.Generator().manual_seed(0)
PAIR = (
    torch.randn(EXAMPLES, 784, generator=GENERATOR),
    torch.randint(10, (EXAMPLES,), generator=GENERATOR),
)
FEDERATION = Federation.from_arrays([PAIR], test_fraction=0.0)
X, Y = FEDERATION.train.of(0)  # in another sequence
WEIGHTS = torch.tensor([0.2, 0.5, 0.3])


def vector(parameters: Any) -> Tensor:
    return parameters_to_vector(parameters).detach()


def pfedme(model: nn.Module, batches: loops.Batches, lr: float) -> tuple[Tensor, Tensor]:
    local = loops.pfedme(model, batches, lr)
    return vector(local), vector(model.parameters())


def in_place(
    loop: Callable[..., None], *more: object
) -> Callable[[nn.Module, loops.Batches, float], tuple[Tensor]]:
    def trained(model: nn.Module, batches: loops.Batches, lr: float) -> tuple[Tensor]:
        loop(model, batches, lr, *more)
        return (vector(model.parameters()),)

    return trained


def umbels(task: Task, theta: Tensor) -> tuple[dict[str, Tensor], Iterator[Any]]:
    """The reply of umbel's only client, and the mini-batches that it took."""
    work = method_of(task).sends[0]
    engine = make_engine(Net(BUILD["mlp"]), FEDERATION)
    each = {"theta": each_its_own(theta[:1]), MEMORY: each_its_own(WEIGHTS[None])}
    replies = engine.send(Request(work, torch.tensor([0]), [SEED], {"models": theta}, each))
    chosen = [torch.from_numpy(step[step >= 0]) for step in work.batching.plan(EXAMPLES, SEED)]
    return {name: column[0] for name, column in replies.columns.items()}, (
        (index, X[index], Y[index]) for index in chosen
    )


@pytest.mark.parametrize(
    ("method", "loop", "tolerance"),
    [
        ("fedavg", in_place(loops.fedavg), 1e-4),
        ("pfedme", pfedme, 1e-4),
        ("per-fedavg", in_place(loops.per_fedavg, False), 1e-4),
        # The difference of two gradients is divided by a small number.
        ("per-fedavg-hf", in_place(loops.per_fedavg, True), 1e-2),
    ],
)
def test_the_plain_loop_trains_a_client_as_umbel_does(
    method: str, loop: Callable[..., tuple[Tensor, ...]], tolerance: float
) -> None:
    task, model = TASKS[f"mlp-{method}"], started("mlp", 0)
    before = vector(model.parameters())
    reply, batches = umbels(task, before[None])
    local, *personal = loop(model, batches, task.lr)
    assert difference(reply["update"], local - before) < tolerance
    for own in personal:
        assert difference(reply[MEMORY] - before, own - before) < tolerance


def test_the_plain_loop_trains_a_mixture_as_umbel_does() -> None:
    task = TASKS["mlp-fedem"]
    models = nn.ModuleList(started("mlp", k) for k in range(COMPONENTS))
    before = torch.stack([vector(model.parameters()) for model in models])
    reply, batches = umbels(task, before)
    shares = loops.shares_of(models, iter([(torch.arange(EXAMPLES), X, Y)]), WEIGHTS)
    loops.fedem(models, batches, task.lr, shares)
    after = torch.stack([vector(model.parameters()) for model in models])
    assert difference(reply["update"], after - before) < 1e-4
    torch.testing.assert_close(reply[MEMORY], shares.mean(0))


def test_a_table_has_a_line_for_each_peer() -> None:
    def row(side: str, cores: int, seconds: float) -> dict[str, Any]:
        times = {"cpu": seconds, "wall": seconds / cores, "evaluation_cpu": 0.01, "evaluated": 100}
        rest = {"memory_mb": 300.0, "accuracy": 0.5, "first_round_over": 2.0, "repeats": 5}
        return {"task": "mlp-ifca", "what": "", "side": side, "cores": cores, **times, **rest}

    rows = [row("umbel", 1, 0.5), row("loop", 1, 2.0), row("umbel", 2, 0.5), row("loop", 2, 1.5)]
    text = markdown({"machine": "mine", "peers": rows})
    (line,) = [line for line in text.splitlines() if line.startswith("| `mlp-ifca`")]
    assert line.split(" | ")[1:8] == ["loop", "0.5", "2", "**4.00**", "0.25", "0.75", "**3.00**"]
