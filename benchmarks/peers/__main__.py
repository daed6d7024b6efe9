"""The same rounds in umbel and elsewhere, in turns: `python -m benchmarks.peers`.

Beside umbel are a plain PyTorch loop with the steps of FL-bench's clients, pfl-research and FedJAX.
Each repeat of each side is a process of its own, with a thread for each core. Times are medians of
the rounds after the first two; that of an evaluation is the difference between rounds with and
without it. pfl and FedJAX get environments of their own in the cache folder, made once, with pinned
packages; a side that can't be installed is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from filelock import FileLock

from benchmarks.__main__ import machine, wanted
from benchmarks.peers.table import markdown
from benchmarks.peers.tasks import TASKS, Task
from benchmarks.result_files import earlier
from benchmarks.revisions import ROOT, package
from umbel.data.cache import cache_directory

PACKAGES = {
    "pfl": ["pfl[pytorch]==0.6.0", "torch==2.13.0"],
    # FedJAX's last release, and what was current when it still worked with it.
    "fedjax": [
        "fedjax==0.0.17", "jax==0.4.25", "jaxlib==0.4.25", "dm-haiku==0.0.12", "chex==0.1.86",
        "optax==0.2.2", "scipy==1.12.0", "numpy==1.26.4",
    ],
}  # fmt: skip
"""What the environment of a side is made of."""


def environment(side: str) -> Path | None:
    """The Python of a side, in an environment that is made if it is not there yet.

    None if its packages can't be installed.
    """
    if side not in PACKAGES:
        return Path(sys.executable)
    folder = cache_directory() / "peers" / "-".join(PACKAGES[side][:2]).replace("==", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "complete").exists():
            sys.stderr.write(f"installing {', '.join(PACKAGES[side])} in {folder}\n")
            venv.create(folder, with_pip=True, clear=True)
            words = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            done = subprocess.run([*words, *PACKAGES[side]], check=False, stdout=sys.stderr)
            if done.returncode:
                sys.stderr.write(f"{side} can't be installed here, and is left out\n")
                return None
            (folder / "complete").touch()
    return folder / "bin" / "python"


def asked(python: Path, side: str, task: str, file: Path, cores: int, source: Path) -> Any:
    """What a process of this side writes down, with the package umbel of a folder."""
    module = "umbel" if side.startswith("umbel") else side
    words = ["-m", "benchmarks.peers.side", module, task, str(file), str(cores)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(cores))
    found = subprocess.run(
        [str(python), *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **threads, "PYTHONPATH": str(source)},
    )
    if found.returncode:
        raise SystemExit(f"{side}, {task}: {found.stderr}")
    return json.loads(found.stdout.splitlines()[-1])


def row_of(name: str, task: Task, side: str, cores: int, found: Sequence[Any]) -> dict[str, Any]:
    """The medians over all processes of a side."""
    laps = [lap for one in found for lap in one["laps"][2:]]
    train = [lap for lap in laps if lap["accuracy"] is None]
    whole = [lap for lap in laps if lap["accuracy"] is not None]
    cpu = median(lap["cpu"] for lap in train)
    return {
        "task": name,
        "what": task.what,
        "side": side,
        "cores": cores,
        "repeats": len(found),
        "cpu": cpu,
        "wall": median(lap["wall"] for lap in train),
        "evaluation_cpu": median(lap["cpu"] for lap in whole) - cpu,
        "evaluated": task.clients * task.examples[1],
        "first_round_over": median(one["laps"][0]["age"] for one in found),
        "memory_mb": median(one["memory_mb"] for one in found),
        "accuracy": median(one["laps"][-1]["accuracy"] for one in found),
    }


def write(file: Path | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Add the rows to those in the file, if one is given, and return all."""
    about = {"machine": machine()}
    there = earlier(file, about, ["peers"]).get("peers", [])
    new = {(row["task"], row["side"], row["cores"]) for row in rows}
    kept = [row for row in there if (row["task"], row["side"], row["cores"]) not in new]
    order = list(TASKS)
    every = sorted([*kept, *rows], key=lambda row: (order.index(row["task"]), row["cores"]))
    results = {**about, "peers": every}
    if file:
        file.write_text(json.dumps(results, indent=1) + "\n")
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Time every task on every side, and print a table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="such as mlp cnn-fedem linear")
    parser.add_argument("--sides", nargs="*", default=["loop", *PACKAGES], help="beside umbel")
    parser.add_argument("--revision", help="also umbel as it was, such as 86599cd")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--json", type=Path, help="write the results here")
    given = parser.parse_args(arguments)
    write(given.json, [])
    there = len(os.sched_getaffinity(0))
    counts = [count for count in given.cores if count <= there]
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pythons = {side: environment(side) for side in ("umbel", *given.sides)}
        sources = dict.fromkeys(pythons, ROOT / "src")
        if given.revision:
            before = f"umbel {given.revision[:8]}"
            pythons[before] = Path(sys.executable)
            sources[before] = package(given.revision, place / "before")
        for name, task in TASKS.items():
            if not wanted(name, given.only):
                continue
            file = place / "examples.npz"
            np.savez(file, **task.draw())
            sides = {
                side: python
                for side, python in pythons.items()
                if python and (side.startswith("umbel") or side in task.peers)
            }
            for cores in counts:
                found: dict[str, list[Any]] = {side: [] for side in sides}
                for _ in range(given.repeats):
                    for side, python in sides.items():
                        told = asked(python, side, name, file, cores, sources[side])
                        found[side].append(told)
                new = [row_of(name, task, side, cores, told) for side, told in found.items()]
                rows += new
                write(given.json, rows)
                for row in new:
                    sys.stderr.write(f"{name}, {row['side']}, {cores}: {row['cpu']:.3g} s of CPU\n")
    sys.stdout.write(markdown(write(given.json, rows)))


if __name__ == "__main__":
    main()
