"""Attacks on methods, with and without defences: `python -m benchmarks.attacks`.

One in five clients attacks, in groups of 16, 12, 8 and 4 clients. A row is one run: the accuracy of
the honest clients, of all and of the smallest group, and the shares of attackers and of honest
clients that are set aside in round 30. The file has a row a line; a run in it is not made again.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
import torch

from benchmarks.__main__ import machine
from umbel.checks import QuorumError
from umbel.data.federation import Federation
from umbel.data.sources import Sources
from umbel.engines.replies.attacks import Attack
from umbel.experiment.library import find_experiment
from umbel.result.run import read
from umbel.run.scores import of_honest

Rows: TypeAlias = list[dict[str, Any]]

ATTACKS: dict[str, Attack] = {
    "none": Attack(),
    "sign-flip": Attack("sign-flip"),
    "sign-flip 10": Attack("sign-flip", strength=10),
    "scaling 10": Attack("scaling"),
    "noise": Attack("noise"),
    "label-flip": Attack("label-flip"),
    "alie": Attack("alie"),
    "ipm": Attack("ipm"),
    "backdoor": Attack("backdoor"),
    "sybils": Attack("sybils"),
    "sleepers": Attack("sign-flip", strength=10, begin=20),
    "free-rider": Attack("free-rider"),
    "claims": Attack("sign-flip", claims=10**9),
    "hijack 5": Attack("hijack", strength=5),
    "fragment": Attack("fragment"),
    "false-alarm": Attack("false-alarm"),
}
METHODS = ("fedavg", "ifca", "clove", "flacc", "cfl-gp", "lcfl", "joint")
KEYS = ("data", "seed", "attack", "method", "defence")

INSIDE = "geometric-median"  # the rule inside clusters
GLOBAL = ("median", "trimmed-mean", "multi-krum", "centred-clipping", "norm-bound", "flame")
RULE = "algorithm.averaging.rule"
MORE = {
    "trimmed-mean": [f"{RULE}.trim=0.25"],
    "mixing": [f"{RULE}.mixing=true"],
    "limits": ["limits.max_norm_ratio=4", "limits.max_share=0.5"],
    "quarantine": ["limits.quarantine=3.5"],
    # Two clusters more than groups, or four, for attackers to have.
    "room": ["algorithm.num_clusters=6"],
    "more-room": ["algorithm.num_clusters=8"],
}
WITH_ROOM = {"clove": ["algorithm.square_roots=true"], "lcfl": ["algorithm.warm_up=federated"]}


def defences(method: str) -> list[str]:
    """Defences of a method: a rule, and what is beside it."""
    found = ["mean", INSIDE, "mean+quarantine", f"{INSIDE}+quarantine"]
    if method == "fedavg":
        return [*found, *GLOBAL, "median+mixing"]
    room = [f"{INSIDE}+room", f"{INSIDE}+quarantine+room"]
    return found if method == "flacc" else found + room


@lru_cache(maxsize=1)
def clients(data: str, seed: int) -> Federation:
    experiment = read(find_experiment(f"fedavg-attacked-{data}"), [f"seed={seed}"])
    return experiment.open(Sources.default()).federation


def measured(data: str, seed: int, attack: str, method: str, defence: str) -> dict[str, Any]:
    """One row. Accuracies are missing if the run has ended before its last round."""
    settings = [f"seed={seed}", f"{RULE}.name={defence.partition('+')[0]}"]
    settings += [setting for part in defence.split("+") for setting in MORE.get(part, [])]
    settings += WITH_ROOM.get(method, []) if "room" in defence else []
    experiment = read(find_experiment(f"{method}-attacked-{data}"), settings)
    federation, does = clients(data, seed), ATTACKS[attack]
    run = replace(experiment, attack=does).run(federation, experiment.engine)
    # The same clients are left out without attacks.
    bad = Attack("noise").attackers(federation.names, federation.groups, seed)
    row: dict[str, Any] = dict(zip(KEYS, (data, seed, attack, method, defence), strict=True))
    try:
        for state, record in run.rounds(experiment.rounds):
            if record.round == 30:
                aside = [n for n, why in record.refused.items() if why.startswith("in quarantine")]
                named = np.isin(np.arange(federation.num_clients), aside)
                row["attackers_named"] = float(named[bad].mean())
                row["honest_named"] = float(np.delete(named, bad).mean())
            last = state
    except QuorumError as error:
        return row | {"ended": str(error)}
    context = run.context(record.round, record.round + 1)
    row |= of_honest(run.scores(last, context).accuracy, bad, federation.groups)
    if attack == "backdoor":
        patched = replace(run, federation=does.triggered(federation)).scores(last, context)
        row["success"] = float(np.nanmean(np.delete(patched.accuracy, bad)))
    return row


def table(title: str, rows: Rows, across: str, *names: str) -> Iterator[str]:
    """Lines of a table of means over seeds, in percent; without attackers in its first line."""
    columns, cells = dict.fromkeys(row[across] for row in rows), defaultdict(list)
    for row in rows:
        cells[row["attack"], row[across]].append(row)
    yield f"\n{title}\n\n| attack | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}"
    for attack in dict.fromkeys(row["attack"] for row in rows):
        line = []
        for mine in (cells[attack, each] for each in columns):
            means = [f"{100 * fmean(r.get(n, 0) for r in mine):.0f}" for n in names if mine]
            ended = sum("ended" in row for row in mine)
            line.append(" / ".join(means) + (f", {ended} ended" if ended else ""))
        yield f"| {attack} | {' | '.join(line)} |"


def tables(rows: Rows) -> Iterator[str]:
    """All tables of a data set."""
    yield f"{machine()}; {len({row['seed'] for row in rows})} seeds"
    accuracies = ("honest_accuracy", "smallest_group_accuracy")
    alone = [row for row in rows if row["method"] == "fedavg"]
    yield from table("fedavg: honest clients / smallest group", alone, "defence", *accuracies)
    for defence in defences("ifca"):
        mine = [row for row in rows if row["defence"] == defence]
        yield from table(f"{defence}: the same", mine, "method", *accuracies)
        if "quarantine" in defence:
            named = ("attackers_named", "honest_named")
            yield from table(f"{defence}: attackers / honest set aside", mine, "method", *named)
        patched = [row for row in mine if "success" in row]
        yield from table(f"{defence}: success", patched, "method", "success")


def quietly() -> None:
    """Begin a worker: one thread, and room for others."""
    torch.set_num_threads(1)
    os.nice(19)
    logging.getLogger("umbel").setLevel(logging.ERROR)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the runs that the file lacks, and print all tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=__doc__)
    parser.add_argument("--data", choices=("digits", "mnist"), default="digits")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--attacks", nargs="*", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--defences", nargs="*", help="by default all of a method's")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args(arguments)
    wanted = [
        (given.data, seed, attack, method, defence)
        for seed in range(given.seeds)
        for attack in given.attacks
        for method in given.methods
        for defence in given.defences or defences(method)
    ]
    given.json.touch()
    rows: Rows = [json.loads(line) for line in given.json.read_text().splitlines()]
    done = {tuple(row[key] for key in KEYS): row for row in rows}
    with ProcessPoolExecutor(given.jobs, get_context("spawn"), quietly) as pool:
        asked = [pool.submit(measured, *key) for key in wanted if key not in done]
        for row in (work.result() for work in as_completed(asked)):
            done[tuple(row[key] for key in KEYS)] = row
            with given.json.open("a") as file:
                file.write(json.dumps(row) + "\n")
    found = "\n".join(tables([done[key] for key in wanted])) + "\n"
    sys.stdout.write(found)
    if given.markdown is not None:
        given.markdown.write_text(found)


if __name__ == "__main__":
    main()
