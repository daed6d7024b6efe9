"""The time of whole rounds of every method, by part: `python -m benchmarks.rounds`."""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import machine, wanted
from benchmarks.measure import matmul_peak, pin
from benchmarks.result_files import earlier
from benchmarks.stopwatch import PARTS, Stopwatch, watching
from benchmarks.workloads import classifier, forward_flops
from umbel.algorithms import ALGORITHMS
from umbel.algorithms.base import Algorithm
from umbel.client.work import Gradient, LocalTraining
from umbel.data.federation import Federation
from umbel.networks import CNN, MLP
from umbel.result.run import Run

Row = dict[str, Any]


GROUPS = 4

ON_ANY_NETWORK = [name for name in ALGORITHMS if name not in ("fedlease", "fedbn")]
"""The methods that need no adapters."""


@dataclass(frozen=True)
class Size:
    """The number of clients, their examples and their training."""

    what: str
    examples: tuple[int, ...]  # for training, by client
    shape: tuple[int, ...]
    model: MLP | CNN
    local: LocalTraining

    def federation(self) -> Federation:
        """Noisy images of ten classes, with a sixth as many test examples.

        The classes have other numbers in each of four groups: clients of one group are alike.
        """
        rng = np.random.default_rng(0)
        typical = rng.random((10, *self.shape), dtype=np.float32)

        def images(count: int, group: int) -> tuple[Any, Any]:
            shown = rng.integers(0, 10, count)
            noise = rng.random((count, *self.shape), dtype=np.float32)
            return (typical[shown] + noise) / 2, (shown + group) % 10

        groups = [n % GROUPS for n in range(len(self.examples))]
        of_clients = list(zip(self.examples, groups, strict=True))
        return Federation.from_arrays(
            [images(count, group) for count, group in of_clients],
            [images(max(1, count // 6), group) for count, group in of_clients],
            groups=groups,
            num_classes=10,
        )


def sizes(short: bool) -> dict[str, Size]:
    """W1 as it is; W2 with a fifth of its clients; W3 with a fifth of them and of its epochs."""
    few = (100,) * 8
    one, ten = LocalTraining(0.1, steps=1, batch_size=64), LocalTraining(0.02, 10, batch_size=20)
    third = LocalTraining(0.05, 1, batch_size=32)
    forty, four = (200,) * 40, (200, 400, 600, 800)
    flat, image = (784,), (1, 28, 28)
    return {
        "W1": Size(
            "MLP 784-200-10, 32 clients x 500 examples, one step on 64",
            few if short else (500,) * 32, flat, MLP(), one,
        ),
        "W2": Size(
            "MLP 784-200-10, 40 clients x 200 examples, 10 epochs of batches of 20",
            few if short else forty, flat, MLP(), replace(ten, epochs=1) if short else ten,
        ),
        "W3": Size(
            "CNN 5x5 32/64, 512, 4 clients of 200 to 800 examples, one epoch of batches of 32",
            (32,) * 4 if short else four, image, CNN(), third,
        ),
    }  # fmt: skip


def method(name: str, local: LocalTraining) -> Algorithm[Any]:
    """The method with four clusters, if it takes their number, and this training, if it trains."""
    changes: dict[str, dict[str, Any]] = {
        # Whatever `local` is, clients send gradients of two models: Algorithm 1.
        "cfl-gp": {"num_clusters": GROUPS, "gradient": Gradient(64), "patience": 1000},
        "fl-hc": {"num_clusters": GROUPS, "cluster_round": 2},
        "lcfl": {"num_clusters": GROUPS},
        "pacfl": {"num_clusters": GROUPS},
        "sattler": {"from_round": 2},
        **{one: {"num_clusters": GROUPS} for one in ("ifca", "joint", "fedem")},
    }
    kind: Any = ALGORITHMS[name]
    if isinstance(kind, Algorithm):  # settings of a method
        return with_training(kind, local)
    return kind(local=local, **changes.get(name, {}))  # type: ignore[no-any-return]


def with_training(method: Any, local: LocalTraining) -> Algorithm[Any]:
    """The same method with other local training, by its own scheme."""
    within = getattr(method, "of", None)
    if within is not None:
        return replace(method, of=with_training(within, local))
    scheme = method.local.scheme
    return replace(method, local=replace(local, scheme=scheme))


def measured(size: Size, name: str, rounds: int, in_memory: bool = False) -> list[dict[str, float]]:
    """CPU seconds of each round by part, on disk as by `Run.rounds(..., folder=...)`, or not."""
    net, _ = classifier(size.model, size.shape)
    run, watch = Run(method(name, size.local), size.federation(), net), Stopwatch()
    taken: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as place, watching(watch):
        began = process_time()
        for _ in run.rounds(rounds, folder=None if in_memory else Path(place) / "run"):
            now = process_time()
            parts = watch.take()
            taken.append({**parts, "whole": now - began})
            began = now
    return taken


def row_of(workload: str, size: Size, name: str, rounds: int, peak: float, in_memory: bool) -> Row:
    """The median of all rounds but the first, and separately the first and the slowest."""
    first, *others = measured(size, name, rounds, in_memory)
    others.sort(key=lambda taken: taken["whole"])
    typical = {part: statistics.median(t[part] for t in others) for part in (*PARTS, "whole")}
    operations = trained(size) * 3 * forward_flops(*_net_and_shape(size))
    return {
        "name": workload,
        "method": name,
        "what": size.what,
        "rounds": rounds,
        **{part: typical[part] for part in PARTS},
        "seconds": typical["whole"],
        "first": first["whole"],
        "slowest": others[-1]["whole"],
        "peak_gflops": peak / 1e9,
        "share_of_peak": operations / (_without(typical) * peak) if name in PLAIN else None,
    }


PLAIN = ("local-only", "fedavg", "fedprox", "oracle", "flacc", "sattler", "fl-hc", "pacfl", "lcfl")
"""Methods whose usual round is one local training of each client, and nothing else of weight."""


def _without(taken: Mapping[str, float]) -> float:
    return taken["whole"] - taken["evaluation"] - taken["record"] - taken["checkpoint"]


def _net_and_shape(size: Size) -> tuple[Any, tuple[int, ...]]:
    return classifier(size.model, size.shape)[0], size.shape


def trained(size: Size) -> int:
    """Examples that go forward and back in one local training of all clients."""
    plans = [size.local.batching.plan(count, 0) for count in size.examples]
    return int(sum((plan >= 0).sum() for plan in plans))


def warm_up(size: Size, names: list[str]) -> None:
    """Import the libraries that methods import at first use."""
    few = replace(size, examples=(10,) * 8, local=replace(size.local, epochs=1))
    for name in names:
        measured(few, name, 4)


def main(arguments: Sequence[str] | None = None) -> None:
    """Time every method at every size, print, and write the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rounds", description=__doc__)
    parser.add_argument("--short", action="store_true", help="smaller workloads, fewer rounds")
    parser.add_argument("--only", nargs="*", default=[], help="such as W1 W3")
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=ON_ANY_NETWORK,
        default=ON_ANY_NETWORK,
        metavar="METHOD",
        help="such as fedavg",
    )
    parser.add_argument("--rounds", type=int, help="2 or more; default: 12 of W1, else 4")
    parser.add_argument("--in-memory", action="store_true", help="write no records or checkpoints")
    parser.add_argument("--json", type=Path, help="write the results here")
    given = parser.parse_args(arguments)
    if given.rounds is not None and given.rounds < 2:  # the first is told apart
        parser.error(f"--rounds: {given.rounds} is not 2 or more")
    earlier(given.json, {"machine": machine()}, ["rounds"])
    logging.getLogger("umbel").setLevel(logging.ERROR)  # of modules that no file describes
    pin()
    peak, console = matmul_peak("cpu"), Console()
    for workload, size in sizes(given.short).items():
        if not wanted(workload, given.only):
            continue
        warm_up(size, given.methods)
        rounds = given.rounds or (12 if workload == "W1" and not given.short else 4)
        found = [
            row_of(workload, size, name, rounds, peak, given.in_memory) for name in given.methods
        ]
        console.print(table(found))
        if given.json:
            write(given.json, found)


def write(file: Path, rows: list[Row]) -> None:
    """Write the results; results of other workloads in the file are kept."""
    about: Row = {"machine": machine()}
    before = earlier(file, about, ["rounds"]) or {**about, "rounds": []}
    new = {row["name"] for row in rows}
    kept = [row for row in before["rounds"] if row["name"] not in new]
    every = sorted([*kept, *rows], key=lambda row: str(row["name"]))
    file.write_text(json.dumps({**before, "rounds": every}, indent=1) + "\n")


def table(rows: list[Row]) -> Table:
    """One line per method, in milliseconds."""
    title = f"{rows[0]['name']} {rows[0]['what']}: CPU milliseconds a round"
    lines = Table(box=None, title=title, title_justify="left")
    for header in ("", "round", *PARTS, "first", "slowest", "peak"):
        lines.add_column(header, justify="right")
    for row in rows:
        share = row["share_of_peak"]
        times = [f"{1000 * row[part]:.3g}" for part in ("seconds", *PARTS, "first", "slowest")]
        lines.add_row(row["method"], *times, "" if share is None else f"{share:.0%}")
    return lines


if __name__ == "__main__":
    main()
