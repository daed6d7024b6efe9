"""Linear regressions, F.4: Fig. 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from umbel.data.scenarios.linear_regressions import LinearRegressions
from umbel.networks import Linear
from umbel.papers.base import (
    Cell,
    ColumnsPlot,
    Reproduction,
    Size,
    cells,
    number_of,
    pick,
    shipped,
    slug,
)
from umbel.papers.findings import findings
from umbel.papers.kim2024.methods import by_gradients

INITS = {"(i)": 0.8, "(ii)": 1.6}


def _fig_1(size: Size) -> Iterator[Cell]:
    """One of C, b and phi is varied; the others stay at 12, 10 and 20 degrees."""
    counts = pick(size, smoke=(12,), reduced=(6, 12, 48), full=(6, 12, 24, 48))
    batches = pick(size, smoke=(10,), reduced=(5, 10, 50), full=(5, 10, 20, 50))
    angles = pick(size, smoke=(20,), reduced=(5, 20, 40), full=(5, 10, 20, 40))
    settings = [(f"C = {c}", c, 10, 20) for c in counts]
    settings += [(f"b = {b}", 12, b, 20) for b in batches]
    settings += [(f"φ = {angle}", 12, 10, angle) for angle in angles]
    full = shipped("cfl-gp-linear")
    rounds = pick(size, smoke=3, reduced=full.most_rounds, full=full.most_rounds)
    for column, clients, batch, angle in settings:
        methods = by_gradients(3, batch, "linear")
        prefix = slug("linear", f"c{clients}-b{batch}-phi{angle}")
        for method in ("CFL-GP", "IFCA", "MADMO"):
            for init, spread in INITS.items():
                experiment = replace(
                    full,
                    scenario=LinearRegressions((-angle, 0.0, angle), clients=clients),
                    model=Linear(spread),
                    description="Kim et al. 2024, F.4",
                    rounds=rounds,
                    evaluate_every=rounds,
                    checkpoint_every=rounds,
                )
                row = f"{method} {init}"
                yield from cells(experiment, {row: methods[method]}, column, prefix)


REPRODUCTIONS = (
    Reproduction(
        findings()["cflgp-fig1"],
        _fig_1,
        ("ari", "loss"),
        (
            ColumnsPlot("ari", "clients C", True, number_of, ("C",)),
            ColumnsPlot("ari", "angle φ, degrees", False, number_of, ("φ",)),
            ColumnsPlot("ari", "batch size b", True, number_of, ("b",)),
            ColumnsPlot("loss", "batch size b", True, number_of, ("b",)),
        ),
        {"smoke": 2, "reduced": 5, "full": 10},
        lockstep=True,
    ),
)
