"""Kim et al. 2024, Fig. 1: linear regressions."""

from __future__ import annotations

from collections.abc import Iterator

from umbel.algorithms import Sattler
from umbel.client.work import Gradient, LocalTraining
from umbel.data.scenarios.linear_regressions import LinearRegressions
from umbel.networks import Linear
from umbel.papers.base import Cell, Published, Reproduction, Size, Sweep, number_of, pick, slug
from umbel.papers.kim2024 import LR, by_gradients
from umbel.runs.experiment import Experiment

LINEAR_INITS = {"(i)": 0.8, "(ii)": 1.6}


def _linear(size: Size) -> Iterator[Cell]:
    """Fig. 1: one of C, b and phi is changed, the others stay at 12, 10 and 20 degrees."""
    counts = pick(size, smoke=(12,), reduced=(6, 12, 48), full=(6, 12, 24, 48))
    batches = pick(size, smoke=(10,), reduced=(5, 10, 50), full=(5, 10, 20, 50))
    angles = pick(size, smoke=(20,), reduced=(5, 20, 40), full=(5, 10, 20, 40))
    settings = [(f"C = {c}", c, 10, 20) for c in counts]
    settings += [(f"b = {b}", 12, b, 20) for b in batches]
    settings += [(f"φ = {angle}", 12, 10, angle) for angle in angles]
    for column, clients, batch, angle in settings:
        scenario = LinearRegressions((-angle, 0.0, angle), clients=clients)
        sattler = Sattler(
            LocalTraining(lr=LR), 0.02, 0.6, send="gradient", gradient=Gradient(batch)
        )
        methods = {**by_gradients(3, batch), "MADMO": sattler}
        for method in ("CFL-GP", "IFCA", "MADMO"):
            for init, spread in LINEAR_INITS.items():
                row = f"{method} {init}"
                name = slug("linear", f"c{clients}-b{batch}-phi{angle}", row)
                rounds = pick(size, smoke=3, reduced=200, full=200)
                experiment = Experiment(
                    scenario,
                    Linear(spread),
                    methods[method],
                    name=name,
                    rounds=rounds,
                    evaluate_every=rounds,
                    checkpoint_every=rounds,
                    description="Kim et al. 2024, F.4",
                )
                yield Cell(row, column, experiment, _published_ari(method, init, column))


def _published_ari(method: str, init: str, column: str) -> dict[str, Published]:
    """What 5.1 says in words of Fig. 1."""
    if method == "CFL-GP":
        low = column == "φ = 5"
        return {"ari": Published(0.9, 0.1, about=True) if low else Published(1.0, 0.02, about=True)}
    if method in ("IFCA", "MADMO") and column == "φ = 5" and init == "(i)":
        return {"ari": Published(0.0, 0.05, about=True)}
    return {}


FIG_1 = Reproduction(
    "cflgp-fig1",
    "Kim et al. 2024, Fig. 1",
    "Linear regressions: ARI and loss against clients, batch size and angle",
    lambda size: list(_linear(size)),
    ("ari", "loss"),
    {"smoke": 2, "reduced": 5, "full": 10},
    (
        Sweep("ari", "clients C", True, number_of, ("C",)),
        Sweep("ari", "angle φ, degrees", False, number_of, ("φ",)),
        Sweep("ari", "batch size b", True, number_of, ("b",)),
        Sweep("loss", "batch size b", True, number_of, ("b",)),
    ),
    "Three lines through noise, 200 rounds of one step, learning rate 0.1; C = 12, b = 10 and "
    "φ = 20 degrees unless said otherwise; θ₁ starts from U(-0.8, 0.8), (i), or U(-1.6, 1.6), (ii)",
    "fewer values of C, b and φ,",
    lockstep=True,
)


REPRODUCTIONS = (FIG_1,)
