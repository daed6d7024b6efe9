"""The study of what FLACC merges by, in small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from benchmarks.merges import Spread, mixings_of
from benchmarks.similarities import experiment_of

from umbel.experiment.experiment import ExperimentSettings
from umbel.networks import MLP


def small(choice: str) -> ExperimentSettings:
    experiment = experiment_of(choice)
    scenario: Any = experiment.scenario
    few = replace(scenario, source="digits", clients=20, examples=(56, 76))
    return replace(experiment, scenario=few, model=MLP((8,)), participation=0.5, evaluate_every=1)


def test_a_share_below_counts_pairs_of_pairs() -> None:
    within = np.array([0.4, 0.6])
    assert Spread.of(np.array([0.3, 0.5]), within).below == 0.75


def test_merges_of_one_group_are_not_told() -> None:
    groups, shared = np.array([0, 0, 1, 1]), np.eye(2, dtype=bool)
    known = {(0, 1): (0.5, 3), (1, 2): (0.25, 1)}
    before = np.arange(4)
    right = np.array([0, 0, 2, 3])
    assert not list(mixings_of(before, right, groups, shared, known))
    (wrong,) = mixings_of(before, np.array([0, 1, 1, 3]), groups, shared, known)
    assert wrong.groups == ((1,), (0,))
    assert (wrong.smallest, wrong.rounds, wrong.share_a_label) == (0.25, (1,), False)
