"""Kim et al. 2024, Fig. 3: clients that mix the distributions of others (F.5.2)."""

from __future__ import annotations

from dataclasses import replace

from umbel.data.scenarios import MIXTURE_MNIST
from umbel.data.shifts import MixedTurns
from umbel.papers.base import Cell, Published, Reproduction, Size, Sweep, number_of, pick, slug
from umbel.papers.kim2024 import by_gradients, mnist

ROUNDS = 400


def _cells(size: Size) -> list[Cell]:
    ratios = pick(
        size,
        smoke=(0.5,),
        reduced=(0.1, 0.3, 0.5, 0.7, 0.9),
        full=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    )
    few = pick(size, smoke=(20,), reduced=(), full=())
    rounds = pick(size, smoke=6, reduced=ROUNDS, full=ROUNDS)
    cells = []
    for kappa in ratios:
        scenario = replace(MIXTURE_MNIST, examples=few, shift=MixedTurns(kappa=kappa))
        for row, method in by_gradients(3, 64, patience=rounds).items():
            name = slug("mixture", f"kappa{kappa}", row)
            experiment = replace(mnist(name, size, scenario, method), rounds=rounds)
            middle = row == "CFL-GP" and kappa == 0.5
            published = {"ari@6": Published(1.0, about=True)} if middle else {}
            cells.append(Cell(row, f"κ = {kappa}", experiment, published))
    return cells


REPRODUCTIONS = (
    Reproduction(
        "cflgp-fig3",
        "Kim et al. 2024, Fig. 3",
        "MNIST at 0 and 180 degrees, and clients that hold some of either",
        _cells,
        ("ari@6", "ari@200", "ari", "accuracy@200", "accuracy"),
        {"smoke": 1, "reduced": 2, "full": 5},
        tuple(
            Sweep(name, "mixture ratio κ", False, number_of)
            for name in ("ari@6", "ari@200", "ari", "accuracy")
        ),
        "12 clients, four of each kind; the third kind's images are at 0 degrees with probability "
        "κ, else at 180; MLP 784-200-10, K = 3, 400 rounds of one step on 64 images, learning rate "
        "0.1; CFL-GP clusters to the end (T_cl = T)",
        "five ratios and 2 seeds",
        needs=("mnist",),
    ),
)
