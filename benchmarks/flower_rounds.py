"""Rounds of FedAvg in Flower's simulation and in umbel: `python -m benchmarks.flower_rounds`.

Needs `pip install "flwr[simulation]>=1.41,<1.43"`, best in an environment of its own. Both do the
same local training on the same examples. All processes, Ray's among them, are kept on one core;
what is compared are CPU seconds of all of them, a round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import uuid
from functools import cache, partial
from pathlib import Path
from time import process_time, sleep
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import difference, pin
from benchmarks.plain import PlainClients
from benchmarks.workloads import classifier, images
from umbel.algorithms import FedAvg
from umbel.client.kernel_choice import Precision
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.engines import EngineSettings
from umbel.networks import CNN, MLP
from umbel.result.run import Run
from umbel.seeds import Stream, client_seeds, seed_of

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, Message

MARK = "UMBEL_BENCHMARK"
CLIENTS = 20
KINDS: dict[str, tuple[MLP | CNN, tuple[int, ...], LocalTraining]] = {
    "W2-like": (MLP(), (784,), LocalTraining(lr=0.02, epochs=10, batch_size=20)),
    "W3-like": (CNN(), (1, 28, 28), LocalTraining(lr=0.05, epochs=1, batch_size=32)),
}
PRECISIONS: dict[str, dict[Precision, float]] = {
    "W2-like": {"full": 1e-3},
    "W3-like": {"full": 0.02, "bf16": 0.2},
}
"""The precisions of umbel, and the largest allowed distance of the last models."""


@cache
def federation_of(kind: str) -> Federation:
    """20 clients with 200 examples each."""
    return images([200] * CLIENTS, KINDS[kind][1])


@cache
def clients_of(kind: str) -> PlainClients:
    """The federation, cached in the memory of a worker."""
    model, shape, _ = KINDS[kind]
    return PlainClients(partial(model.build, shape, 10), federation_of(kind), "cpu", "classes")


def in_umbel(kind: str, rounds: int, precision: Precision) -> tuple[list[float], Tensor]:
    """CPU seconds of each round, and the last model."""
    model, shape, local = KINDS[kind]
    net, _ = classifier(model, shape)
    run = Run(
        FedAvg(local),
        federation_of(kind),
        net,
        evaluate_every=rounds + 1,
        engine=EngineSettings(device="cpu", precision=precision),
    )
    seconds, before = [], process_time()
    for state, _ in run.rounds(rounds):
        seconds.append(process_time() - before)
        last, before = state.models[0], process_time()
    return seconds, last


def in_flower(kind: str, rounds: int) -> tuple[list[float], Tensor]:
    """The same in Flower's simulation, with one worker."""
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    from benchmarks import flower_rounds  # workers can import it by this name, too

    model, shape, local = KINDS[kind]
    net, _ = classifier(model, shape)
    client_app, server_app = ClientApp(), ServerApp()
    seconds: list[float] = []
    models = [net.new(seed_of(0, Stream.MODEL, 0))]

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        one = int(context.node_config["partition-id"])
        number = int(str(message.content.config_records["round"]["number"]))
        theta = _theta(message)
        (seed,) = client_seeds(0, Stream.CLIENT, number, np.array([one]))
        update = flower_rounds.clients_of(kind).train_one(local, local.lr, theta, one, seed)
        content = RecordDict({"model": _record(update)})
        return Message(content=content, reply_to=message)

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:  # noqa: ARG001
        while len(list(grid.get_node_ids())) < CLIENTS:
            sleep(0.1)
        before = cpu_seconds()
        for number in range(rounds):
            record = RecordDict({"model": _record(models[-1])})
            record["round"] = ConfigRecord({"number": number})
            messages = [Message(record, node, "train") for node in grid.get_node_ids()]
            replies = list(grid.send_and_receive(messages))
            rows = [_theta(reply) for reply in replies]
            models.append(models[-1] + torch.stack(rows).mean(0))
            now = cpu_seconds()
            seconds.append(now - before)
            before = now

    resources: Any = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, CLIENTS, backend_config=resources)
    return seconds, models[-1]


def _record(values: Tensor) -> ArrayRecord:
    from flwr.app import ArrayRecord

    return ArrayRecord([values.numpy()])


def _theta(message: Message) -> Tensor:
    (array,) = message.content.array_records["model"].to_numpy_ndarrays()
    return torch.from_numpy(array.copy())


def cpu_seconds() -> float:
    """The CPU time of all processes with this process's mark, including Ray's workers."""
    total, mark = 0, f"{MARK}={os.environ[MARK]}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0") or folder.name == str(
                os.getpid()
            ):
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                total += int(fields[11]) + int(fields[12])
        except OSError:
            continue
    return total / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Both ways, both kinds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flower_rounds", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    rounds = parser.parse_args().rounds
    os.environ[MARK] = uuid.uuid4().hex
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    pin()
    for kind in KINDS:
        theirs, other = in_flower(kind, rounds)
        for precision, tolerance in PRECISIONS[kind].items():
            ours, mine = in_umbel(kind, rounds, precision)
            apart = difference(mine, other)
            if apart > tolerance:
                raise SystemExit(f"{kind}, {precision}: the models differ by {apart:.2g}")
            # The first rounds start processes and warm up.
            a, b = statistics.median(ours[2:]), statistics.median(theirs[2:])
            sys.stdout.write(
                f"{kind}, {precision}: CPU seconds a round: umbel {a:.3f} ({min(ours[2:]):.3f} to "
                f"{max(ours[2:]):.3f}), Flower {b:.3f} ({min(theirs[2:]):.3f} to "
                f"{max(theirs[2:]):.3f}), ratio {b / a:.1f}; models apart {apart:.2g}\n"
            )


if __name__ == "__main__":
    main()
