"""The study of what FLACC merges by, in small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.merges import Spread, mixings_of, rounds_seen, swapped_pairs
from benchmarks.similarities import CHOICES, Network, Study, experiment_of, printed
from rich.console import Console

from umbel.client.optimizers import SGD
from umbel.data.sources import Sources
from umbel.experiment.experiment import ExperimentSettings
from umbel.networks import CNN, MLP


def small(choice: str) -> ExperimentSettings:
    experiment = experiment_of(choice)
    scenario: Any = experiment.scenario
    few = replace(scenario, source="digits", clients=20, examples=(56, 76))
    return replace(experiment, scenario=few, model=MLP((8,)), participation=0.5, evaluate_every=1)


@pytest.mark.parametrize("choice", ["as-in-table", "disjoint"])
def test_every_round_tells_the_similarities_of_its_cohort(choice: str) -> None:
    experiment = small(choice)
    seen = list(rounds_seen(experiment, 3, Sources.default()))
    assert [each.number for each in seen] == [0, 1, 2]
    assert [each.entities for each in seen] == [18, 16, 14]
    assert all(-1 <= each.within.mean <= each.within.largest <= 1 for each in seen)
    assert all(0 <= each.apart.below <= 1 for each in seen)
    assert all(np.isnan(each.sharing.mean) == (choice == "disjoint") for each in seen)
    assert all(each.accuracy is not None for each in seen)
    console = Console(record=True, width=200, quiet=True)
    printed(Study(choice, 0, "full", swapped_pairs(experiment), seen), console)


def test_choices_are_taken_together() -> None:
    experiment = experiment_of("disjoint+whole-batches+glorot+unpadded+momentum+standardised")
    scenario: Any = experiment.scenario
    assert scenario.shift.disjoint
    assert scenario.standardise
    algorithm: Any = experiment.algorithm
    assert algorithm.local.drop_last
    assert algorithm.local.optimizer == SGD(momentum=0.9)
    assert experiment.model == Network(glorot=True, padded=False)
    pairs = swapped_pairs(experiment)
    assert sorted(label for pair in pairs for label in pair) == list(range(10))


def test_what_no_choice_is_called_is_refused() -> None:
    with pytest.raises(ValueError, match=f"'disjont' is not one of {', '.join(CHOICES)}"):
        experiment_of("as-in-table+disjont")


def test_the_network_of_the_table_begins_as_the_paper_s() -> None:
    starts = []
    for model in (CNN(), Network()):
        torch.manual_seed(0)
        starts.append(list(model.build((3, 32, 32), 10).parameters()))
    assert all(map(torch.equal, *starts))


def test_without_padding_images_shrink() -> None:
    shapes = [p.shape for p in Network(padded=False).build((3, 32, 32), 10).parameters()]
    assert shapes[4] == (512, 64 * 5 * 5)
    biases = [p for p in Network(glorot=True).build((3, 32, 32), 10).parameters() if p.dim() == 1]
    assert not any(bias.any() for bias in biases)


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
