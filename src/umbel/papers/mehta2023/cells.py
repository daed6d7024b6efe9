"""FLACC compared with seven methods, effects of settings: Tables I, IV to VI, Figs. 4, 8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from umbel.algorithms import FLACC, FLHC, IFCA, FedAvg, LocalOnly, PerFedAvg, PFedMe, Sattler
from umbel.algorithms.base import Algorithm
from umbel.client.work import LocalTraining
from umbel.papers.base import Cell, ColumnsPlot, Reproduction, RoundsPlot, Size, cells, pick, slug
from umbel.papers.findings import findings
from umbel.papers.mehta2023.benchmarks import AT_FULL_SIZE, BENCHMARKS, Benchmark

FOREVER = 1000
"""More rounds than any run has, so that nothing is forgotten."""

ALPHA_0 = {f"α₀ = {a:+g}" if a else "α₀ = 0": FLACC(alpha_0=a) for a in (0.1, 0.0, -0.1)}
MEMORY = {
    f"T = {'∞' if memory == FOREVER else memory}": FLACC(memory=memory)
    for memory in (2, 5, 10, 25, FOREVER)
}
SIMILARITY = {"weight updates": FLACC(), "gradients": FLACC(similarity="gradient")}


def pfedme(pull: float, beta: float, local: LocalTraining) -> PFedMe:
    """pFedMe with the paper's lambda and beta, and the local training of all methods.

    The personal step size is not printed: here it is one that lambda bounds.
    """
    return PFedMe(pull=pull, beta=beta, personal_lr=0.6 / pull, local=local)


def _methods(benchmark: Benchmark, size: Size) -> Iterator[tuple[str, Algorithm[Any]]]:
    """The rows of Table I; at reduced size only with the right k and d."""
    local = benchmark.local
    yield "NoFed", LocalOnly(local)
    yield "FedAvg", FedAvg(local)
    yield "pFedMe", pfedme(*benchmark.pfedme, local)
    yield "Per-FedAvg", PerFedAvg(alpha=benchmark.alpha, local=local)
    yield "CFL", Sattler(local)
    guesses = ("right",) if size == "reduced" else ("too low", "right", "too high")
    place = ("too low", "right", "too high").index
    for guess in guesses:
        yield f"IFCA (k {guess})", IFCA(benchmark.ifca[place(guess)], local)
    rounds = pick(size, smoke=1, reduced=10, full=10)
    for guess in guesses:
        threshold = benchmark.flhc[place(guess)]
        yield f"FL+HC (d {guess})", FLHC(threshold=threshold, cluster_round=rounds, local=local)
    yield "FLACC", FLACC(local)


def _compared(size: Size, rows: tuple[str, ...] = ()) -> Iterator[Cell]:
    """Table I without its last column, in which clients are writers; or only some of its rows."""
    for benchmark in (*BENCHMARKS, *pick(size, smoke=(), reduced=(), full=AT_FULL_SIZE)):
        methods = {row: m for row, m in _methods(benchmark, size) if not rows or row in rows}
        prefix = slug("flacc", benchmark.name)
        yield from cells(benchmark.experiment(size), methods, benchmark.name, prefix)


def _variants(variants: Mapping[str, FLACC], size: Size) -> Iterator[Cell]:
    """FLACC with some settings on each of the four federations."""
    for benchmark in BENCHMARKS:
        usual = FLACC(benchmark.local)
        for row, method in variants.items():
            whole = replace(method, local=benchmark.local)
            # The common setting of all tables is a single experiment, run once.
            name = slug("flacc", benchmark.name, "flacc", "" if whole == usual else row)
            made = replace(benchmark.experiment(size), algorithm=whole, name=name)
            yield Cell(row, benchmark.name, made)


def _memories(size: Size) -> Iterator[Cell]:
    rows = pick(size, smoke=("T = 2", "T = 10"), reduced=tuple(MEMORY), full=tuple(MEMORY))
    return _variants({row: MEMORY[row] for row in rows}, size)


MEASURES = ("clusters", "accuracy", "ari")
PLOTS = (ColumnsPlot("clusters", ""), ColumnsPlot("accuracy", ""))
SAID = findings()

REPRODUCTIONS = (
    Reproduction(
        SAID["flacc-table1"],
        _compared,
        ("accuracy", "clusters", "ari"),
        (ColumnsPlot("accuracy", "federation"),),
    ),
    Reproduction(SAID["flacc-table4"], partial(_variants, ALPHA_0), MEASURES, PLOTS),
    Reproduction(SAID["flacc-table5"], _memories, MEASURES, PLOTS),
    Reproduction(SAID["flacc-table6"], partial(_variants, SIMILARITY), MEASURES, PLOTS),
    Reproduction(
        SAID["flacc-fig4"],
        partial(_compared, rows=("FedAvg", "FLACC")),
        ("separation", "accuracy", "ari"),
        (RoundsPlot("accuracy"),),
    ),
    Reproduction(
        SAID["flacc-fig8"],
        partial(_variants, SIMILARITY),
        ("clusters", "ari"),
        (RoundsPlot("best_cross"),),
    ),
)
