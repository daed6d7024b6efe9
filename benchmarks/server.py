"""W7: the server's own work, against the number of clients."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from time import process_time

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.measure import peak_memory_mb, pin
from umbel.algorithms import FLACC
from umbel.algorithms.flacc import FLACCState
from umbel.client.layout import Entry, Layout
from umbel.flow import Replies
from umbel.server.ask import Context
from umbel.server.clustering import k_medoids, spectral

Row = dict[str, str | float | None]
GROUPS = 4
COORDINATES = 1000
COHORT = 100


def spectral_step(clients: int) -> Callable[[], object]:
    """CFL-GP's clustering of features of 1,000 coordinates."""
    features = _noisy_groups(clients, COORDINATES)
    return lambda: spectral(features, GROUPS, seed=0)


def merging(clients: int) -> Callable[[], object]:
    """Five rounds of FLACC's merging, with cohorts of 100, on updates of 1,000 values."""
    method = FLACC()
    layout = Layout((Entry("w", torch.Size([COORDINATES])),), ())
    rng = torch.Generator().manual_seed(0)
    cohorts = [
        torch.randperm(clients, generator=rng)[:COHORT].sort().values
        if clients <= 100_000
        else torch.unique(torch.randint(0, clients, (COHORT,), generator=rng))
        for _ in range(5)
    ]
    updates = [_noisy_groups(len(cohort), COORDINATES) for cohort in cohorts]

    def rounds() -> FLACCState:
        state = FLACCState(
            models=torch.zeros(1, COORDINATES),
            labels=torch.arange(clients),
            pairs=torch.zeros(0, 2, dtype=torch.long),
            similarity=torch.zeros(0, dtype=torch.double),
            seen=torch.zeros(0, dtype=torch.long),
            last_merge=-1,
            separated=False,
            merges=0,
            best_cross=float("nan"),
        )
        for number, (cohort, update) in enumerate(zip(cohorts, updates, strict=True)):
            context = Context(
                round=number,
                num_rounds=100,
                cohort=cohort,
                num_clients=clients,
                seed=0,
                layout=layout,
            )
            flow = method.round(state, context)
            next(flow)
            count = torch.ones(len(cohort), dtype=torch.long)
            try:
                flow.send(Replies(cohort, {"update": update, "num_examples": count}))
            except StopIteration as stop:
                state = stop.value
        return state

    return rounds


def medoids(clients: int) -> Callable[[], object]:
    """LCFL's k-medoids on the distances of all clients."""
    rows = _noisy_groups(clients, 50)
    distance = torch.cdist(rows, rows)
    return lambda: k_medoids(distance, GROUPS, seed=0)


STEPS: dict[str, tuple[Callable[[int], Callable[[], object]], Sequence[int], Sequence[int]]] = {
    "CFL-GP, spectral step": (spectral_step, (100, 1000, 10_000, 100_000), (100, 1000)),
    "FLACC, five rounds of merging": (
        merging,
        (1000, 10_000, 100_000, 1_000_000),
        (1000, 10_000),
    ),
    "LCFL, k-medoids": (medoids, (1000, 2000, 5000, 10_000), (500, 1000)),
}


def server_table(short: bool, console: Console) -> list[Row]:
    """Each step at each size, in a process of its own; how the cost grows is the slope."""
    rows: list[Row] = []
    for name, (_, full, few) in STEPS.items():
        table = Table(box=None, title=f"W7 {name}", title_justify="left")
        for header in ("clients", "s", "MiB", "slope"):
            table.add_column(header, justify="right")
        before: Row | None = None
        for clients in few if short else full:
            row = measured(name, clients)
            row["slope"] = _slope(before, row) if before else None
            slope = f"{row['slope']:.2f}" if before else ""
            table.add_row(f"{clients:,}", f"{row['seconds']:.3g}", f"{row['memory_mb']:.0f}", slope)
            rows.append(row)
            before = row
        console.print(table)
    return rows


def _slope(before: Row, after: Row) -> float:
    """The slope of the cost in a figure with logarithmic axes."""
    cost = math.log(number(after, "seconds") / number(before, "seconds"))
    return cost / math.log(number(after, "clients") / number(before, "clients"))


def number(row: Row, name: str) -> float:
    """One of a row's numbers."""
    return float(row[name] or 0)


def measured(name: str, clients: int) -> Row:
    """One step at one size, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.server", name, str(clients)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, memory = map(float, done.stdout.split())
    return {"name": name, "clients": clients, "seconds": seconds, "memory_mb": memory}


def _noisy_groups(rows: int, columns: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(0)
    centres = torch.randn(GROUPS, columns, generator=rng)
    return centres.repeat(-(-rows // GROUPS), 1)[:rows] + 0.5 * torch.randn(
        rows, columns, generator=rng
    )


if __name__ == "__main__":
    pin()
    set_up = STEPS[sys.argv[1]][0]
    set_up(COHORT)()  # libraries are loaded at first use
    step = set_up(int(sys.argv[2]))
    start = process_time()
    step()
    sys.stdout.write(f"{process_time() - start} {peak_memory_mb()}\n")
