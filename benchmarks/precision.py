"""Comparison of full precision and bfloat16: `python -m benchmarks.precision`.

Whole workloads, experiments, other networks and single products, or the `--parts` named.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.__main__ import machine
from benchmarks.measure import alternate, difference, matmul_peak, pin
from benchmarks.products import measured
from benchmarks.report import precision_markdown
from benchmarks.result_files import earlier
from benchmarks.workers import CharLSTM, CharTransformer, letters
from benchmarks.workloads import (
    BF16,
    FULL,
    Result,
    classifier,
    images,
    lcfl_losses,
    lcfl_training,
    one_step,
    updates,
)
from umbel.client.kernel_choice import Precision
from umbel.client.kernels import by_example
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.data.sources import Sources
from umbel.engines import Sequential
from umbel.engines.precision import bf16_units, usable_precision
from umbel.experiment.library import find_experiment
from umbel.flow import Rows
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.networks import CNN, CNNLin, LeNet, Model, ResNet18
from umbel.preflight.properties import with_channels_last
from umbel.result.run import read
from umbel.run.records import Record

Row = dict[str, Any]

PARTS = ["speeds", "experiments", "networks", "products"]

CONTESTS = {
    "W1": partial(one_step, 32, "cpu"),
    "W2 training": partial(lcfl_training, 200, "cpu"),
    "W2 cross-loss": partial(lcfl_losses, 60, "cpu"),
}


@dataclass(frozen=True)
class Case:
    """An experiment, and the changes to it."""

    what: str
    name: str
    changes: tuple[str, ...] = ()


CASES = [
    Case("FLACC, rotated MNIST", "flacc-mnist-reduced", ("rounds=60",)),
    Case("IFCA, rotated MNIST", "ifca-mnist-reduced", ("rounds=30",)),
    Case(
        "CFL-GP, rotated MNIST",
        "fedavg-mnist-reduced",
        ("rounds=6", "algorithm.name=cfl-gp", "algorithm.num_clusters=4", "algorithm.send=update"),
    ),
    Case(
        "LCFL, rotated MNIST, W2's network and training",
        "lcfl-120",
        (
            "rounds=5",
            "scenario.normalise=[]",
            "model={ name = 'mlp' }",
            "algorithm.local.lr_decay=0.99",
        ),
    ),
]
"""All with the MLP 784-200-10."""


STEPPING = "fp32, all steps on the weights"
"""Inside the block, no layer is kept by example."""


def speeds(repeats: int) -> list[Row]:
    """CPU seconds of whole workloads, in turns, and their shares of each precision's peak."""
    full, half = matmul_peak("cpu"), matmul_peak("cpu", dtype=torch.bfloat16)
    rows: list[Row] = []
    for name, build in CONTESTS.items():
        contest = build()
        ways = {FULL: contest.ours[FULL], BF16: contest.ours[BF16]}
        if name == "W2 training":
            ways[STEPPING] = partial(stepping, contest.ours[FULL])
        results = {label: way() for label, way in ways.items()}  # they are warm after this
        timings = alternate(list(ways.values()), repeats, "cpu")
        for label, timing in zip(ways, timings, strict=True):
            peak = half if label == BF16 else full
            rows.append(
                {
                    "name": name,
                    "what": contest.what,
                    "precision": label,
                    "seconds": timing.median,
                    "low": timing.low,
                    "high": timing.high,
                    "peak_gflops": peak / 1e9,
                    "share_of_peak": contest.flops / timing.median / peak,
                    "times": timings[0].median / timing.median,
                    "apart": max(map(difference, results[label], results[FULL])),
                }
            )
    return rows


def stepping(way: Callable[[], Result]) -> Result:
    """Take all steps on the weights."""
    with patch.object(by_example, "is_faster", lambda *_, **__: False):
        return way()


def networks(repeats: int) -> list[Row]:
    """How many times as fast a client trains in bfloat16, by the network: by autocast, whole."""
    shapes = {"1x28x28": (1, 28, 28), "3x32x32": (3, 32, 32)}
    models: tuple[Model, ...] = (LeNet(), CNN(), CNNLin(), ResNet18())
    cases = [
        (f"{type(model).__name__} on {size}", classifier(model, shape)[0], images([64], shape))
        for model in models
        for size, shape in shapes.items()
    ]
    cases += [
        ("LSTM of two layers with 128 units", *letters(CharLSTM, [64])),
        ("transformer of two layers, 64 wide", *letters(CharTransformer, [64])),
    ]
    return [{"network": name, **trained(net, each, repeats)} for name, net, each in cases]


def trained(net: Net, federation: Federation, repeats: int) -> Row:
    """An epoch with batches of 32, in both precisions, in turns."""
    work, theta = LocalTraining(epochs=1, batch_size=32), Rows(net.new(0)[None], torch.tensor([0]))
    precisions: tuple[Precision, ...] = ("full", "bf16")
    nets = (with_channels_last(net.using("in-place", one), federation) for one in precisions)
    both = [Sequential(one, federation) for one in nets]
    ways: list[Callable[[], object]] = [partial(updates, each, work, 1, theta) for each in both]
    for way in ways:
        way()
    full, half = alternate(ways, repeats, "cpu")
    taken = usable_precision(net, torch.device("cpu"), "bf16") == "bf16"
    return {"full": full.median, "half": half.median, "taken": taken}


def experiments(seeds: Sequence[int]) -> list[Row]:
    """All of them, in both precisions."""
    return [row for case in CASES for row in agreement(case, seeds)]


def agreement(case: Case, seeds: Sequence[int]) -> list[Row]:
    """The end of every run, in both precisions."""
    return [
        {"what": case.what, "precision": label, "seed": seed, **end(case, label, seed)}
        for seed in seeds
        for label in (FULL, BF16)
    ]


def end(case: Case, label: str, seed: int) -> Row:
    """Measures in the last record of a run."""
    precision = "full" if label == FULL else "bf16"
    settings = [*case.changes, f"seed={seed}", f"engine.precision={precision}"]
    experiment = read(find_experiment(case.name), settings)
    with tempfile.TemporaryDirectory() as place:
        records = list(execute(RunFolder.create(Path(place) / "run", experiment), sources()))
    last: Record = records[-1]
    return {
        "rounds": len(records),
        "accuracy": last.accuracy,
        "num_clusters": last.num_clusters,
        "ari": last.ari,
    }


def sources() -> Sources:
    """Where data sets are."""
    return Sources.default()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables, and write the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__)
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the results here")
    given = parser.parse_args(arguments)
    about: Row = {"machine": f"{machine()}, {', '.join(bf16_units())}"}
    results = earlier(given.json, about, PARTS) | about
    if not bf16_units():
        raise SystemExit("this processor has no products of bfloat16 numbers")
    pin()
    parts: dict[str, Callable[[], list[Row]]] = {
        "speeds": partial(speeds, given.repeats),
        "experiments": partial(experiments, range(given.seeds)),
        "networks": partial(networks, given.repeats),
        "products": measured,
    }
    for name in given.parts:
        results[name] = parts[name]()
        if given.json:
            given.json.write_text(json.dumps(results, indent=1) + "\n")
    sys.stdout.write(precision_markdown(json.loads(json.dumps(results))))


if __name__ == "__main__":
    main()
