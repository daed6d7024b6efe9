"""The study of what keeps purity low on EMNIST, in small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from benchmarks import letters, similarities
from benchmarks.letters import CHOICES, experiment_of, same_name, watched

from umbel.data.scenarios.overlapping_labels import OverlappingLabels
from umbel.data.sources import Sources
from umbel.networks import MLP


def test_choices_are_taken_together() -> None:
    experiment = experiment_of("random+global-labels+lr-0.1+batch-512", 16, 3, seed=1)
    scenario, method = experiment.scenario, experiment.algorithm
    assert isinstance(scenario, OverlappingLabels)
    assert [len(set(mine)) for mine in scenario.labels] == 8 * [40]
    assert not scenario.local_labels
    local: Any = getattr(method, "local", None)
    assert (local.lr, local.batch_size, local.steps) == (0.1, 512, 1)
    assert (scenario.clients, experiment.rounds, experiment.seed) == (16, 3, 1)


def test_what_no_choice_is_called_is_refused() -> None:
    with pytest.raises(ValueError, match=f"'radnom' is not one of {', '.join(CHOICES)}"):
        experiment_of("radnom", 16, 3, 0)
    for module in (letters, similarities):
        with pytest.raises(SystemExit, match="choice: 'radnom' is not one of as-in-table, "):
            module.main(["as-in-table", "radnom"])


def test_groups_that_lack_other_classes_call_few_the_same() -> None:
    scenario = OverlappingLabels(labels=((0, 1, 2, 3), (0, 2, 3, 4), (0, 1, 2, 5)))
    # Both have 0, 2 and 3 and call 0 the same; 0, 1 and 2, all the same; 0 and 2, 0 the same.
    mean, most = same_name(scenario)
    assert mean == pytest.approx((1 / 3 + 1 + 1 / 2) / 3)
    assert most == 1
    assert same_name(replace(scenario, local_labels=False)) == (1, 1)


def test_rounds_that_are_shown_have_purity_and_the_models_in_use() -> None:
    usual = experiment_of("as-in-table", 8, 6, 0)
    method: Any = usual.algorithm
    small = replace(
        usual,
        scenario=OverlappingLabels(clients=8),
        model=MLP((8,)),
        algorithm=replace(method, num_clusters=4),
    )
    seen = list(watched(small, Sources.default()))
    assert [record.round + 1 for record, _ in seen] == [5, 6]
    assert all(record.purity is not None and 1 <= models <= 4 for record, models in seen)
    assert seen[-1][0].accuracy is not None
