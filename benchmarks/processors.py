"""How far a run ends from itself on other instructions: `python -m benchmarks.processors FILE`.

Rounding differs between instruction sets, and training makes a small difference large. Three rows
of reproductions are run at reduced size twice with the same seed, in processes of their own: with
what the processor has, and with SSE4.1 at most. The table in FILE, by default that of the page of
fidelity, gives the last values, and the largest difference after any evaluated round. It needs
`mnist` and `cifar10` in the data directory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.refusing import plainly
from umbel.data.sources import Sources
from umbel.papers import page
from umbel.papers.catalogue import REPRODUCTIONS
from umbel.result.run import Experiment
from umbel.summary import joined_by_and

ROWS = (
    ("flacc-table1", "FLACC", "rotated MNIST"),
    ("flacc-table1", "CFL", "grouped CIFAR-10"),
    ("cflgp-table9", "IFCA", "C = 20"),
)

OLDER = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
}
"""The oldest instructions that each library of PyTorch can be held to."""

Course = list[Mapping[str, Any]]
"""Accuracy, ARI and clusters after each evaluated round."""


def course(name: str, row: str, column: str) -> Course:
    """Run one row."""
    cells = REPRODUCTIONS[name].cells("reduced")
    (cell,) = (cell for cell in cells if (cell.row, cell.column) == (row, column))
    run = Experiment.of(replace(cell.experiment, evaluate_every=2)).open(Sources.default())
    records = [record for _, record in run.rounds(cell.experiment.rounds)]
    wanted = ("accuracy", "ari", "num_clusters")
    return [
        {name: getattr(record, name) for name in wanted}
        for record in records
        if record.accuracy is not None
    ]


def elsewhere(row: tuple[str, str, str], variables: Mapping[str, str]) -> Course:
    """Run one row in a process with these variables."""
    command = [sys.executable, "-m", "benchmarks.processors", "--row", *row]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: Course = json.loads(done.stdout.splitlines()[-1])
    return found


def table() -> Iterator[str]:
    """The table in Markdown, a line a row."""
    here = torch.backends.cpu.get_cpu_capability()
    yield f"| run, reduced, seed 0 | {here} at the end | SSE4.1 at the end | largest difference |"
    yield "|---|---|---|---|"
    for row in ROWS:
        click.echo(f"{row}", err=True)
        one, other = elsewhere(row, {}), elsewhere(row, OLDER)
        both = list(zip(one, other, strict=True))
        gaps = [abs(a["accuracy"] - b["accuracy"]) for a, b in both]
        indices = [abs((a["ari"] or 0) - (b["ari"] or 0)) for a, b in both]
        clusters = sum(a["num_clusters"] != b["num_clusters"] for a, b in both)
        largest = [f"{100 * max(gaps):.1f} points", f"ARI {max(indices):.2f}"]
        largest.append(f"clusters in {clusters} of {len(one)} evaluated rounds")
        ends = [f"{100 * c[-1]['accuracy']:.1f}%, ARI {c[-1]['ari']:.2f}" for c in (one, other)]
        yield f"| {row[0]}: {row[1]}; {row[2]} | {' | '.join(ends)} | {joined_by_and(largest)} |"


@plainly()
def main() -> None:
    """Write the table, or run one row and print its course."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=page.PROCESSORS_FILE)
    parser.add_argument("--row", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        click.echo(json.dumps(course(*options.row)))
    else:
        options.file.write_text("".join(f"{line}\n" for line in table()), encoding="utf-8")


if __name__ == "__main__":
    main()
