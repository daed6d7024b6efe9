"""Marks on a comparison, against gains worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

from umbel.bench.audits import deciding_seeds
from umbel.experiment.library import find_experiment
from umbel.result.run import read
from umbel.result.statistics.contenders import ComparedMethod
from umbel.result.statistics.data import Data
from umbel.result.statistics.measures import ACCURACY
from umbel.result.statistics.pairs import standing

SCENARIO = read(find_experiment("fedavg-digits")).scenario


def contender(name: str, by_seed: Sequence[float]) -> ComparedMethod:
    """A method with these means, around which eight clients lie."""
    around = (-0.03, 0.03, -0.01, 0.01, 0.02, -0.02, 0.0, 0.0)
    return ComparedMethod(
        name=name,
        baseline="",
        quality=sum(by_seed) / len(by_seed),
        data=dict.fromkeys(range(len(by_seed)), Data(SCENARIO)),
        scores={
            seed: {f"site {n}": mean + of for n, of in enumerate(around)}
            for seed, mean in enumerate(by_seed)
        },
    )


def test_a_lead_that_one_seed_makes_is_marked_with_the_seed() -> None:
    # Gains by seed: .3, -.02, -.03, -.02, and so .0575 in the mean; without seed 0 below zero.
    other = contender("other", (0.5, 0.5, 0.5, 0.5))
    leader = contender("leader", (0.8, 0.48, 0.47, 0.48))
    order = standing([other, leader], ACCURACY)
    assert deciding_seeds(order) == {("leader", "other"): [0]}


def test_a_lead_that_all_seeds_make_is_not_marked() -> None:
    other = contender("other", (0.5, 0.51, 0.49, 0.5, 0.5))
    leader = contender("leader", (0.8, 0.81, 0.8, 0.79, 0.8))
    order = standing([other, leader], ACCURACY)
    assert order.pairs[0].sure
    assert deciding_seeds(order) == {}
    alone = standing([contender("other", (0.5,)), contender("leader", (0.8,))], ACCURACY)
    assert deciding_seeds(alone) == {}  # without it, nothing is left
