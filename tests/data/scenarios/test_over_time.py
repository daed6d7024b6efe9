"""Scenarios whose clients get new examples in each step of time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.data.scenarios import LABEL_SWAPPED_DIGITS, ROTATED_DIGITS
from umbel.data.scenarios.few_labels import FewLabels
from umbel.data.scenarios.folder import Folder
from umbel.data.scenarios.shifted import Shifted
from umbel.data.shifts import Rotate, SwapLabels
from umbel.data.sources import Sources

TURNS = ((0, 1, 2), (0, 0, 3), (1, 0, 3), (1, 0, 0))


def test_a_client_gets_new_digits_in_each_step_turned_by_its_concept(sources: Sources) -> None:
    scenario = replace(ROTATED_DIGITS, clients=3, examples=(20, 30))
    federation = scenario.built_over_time(0, sources, None, TURNS)
    assert federation.num_steps == 3
    assert federation.concepts is not None
    assert federation.concepts.T.tolist() == [list(row) for row in TURNS]
    assert federation.train.steps is not None
    assert federation.train.steps.min() >= 20
    assert federation.train.steps.max() <= 30
    digits = {image.tobytes() for image in sources.load("digits").images(np.arange(1797))}
    seen = []
    for step, row in enumerate(TURNS[:3]):
        for client, turns in enumerate(row):
            images = federation.at(step, step).train.of(client)[0].numpy()
            upright = np.ascontiguousarray(np.rot90(images, -turns, axes=(2, 3)))
            seen += [image.tobytes() for image in upright]
    assert digits.issuperset(seen)
    assert len(set(seen)) == len(seen)


def test_without_a_schedule_clients_stay_in_their_groups(sources: Sources) -> None:
    scenario = replace(ROTATED_DIGITS, clients=6, shares=(1, 1, 2, 2))
    federation = scenario.built_over_time(0, sources, None, "")
    assert federation.num_steps == 10
    assert federation.concepts is not None
    assert federation.concepts[:, 3].tolist() == [0, 1, 2, 2, 3, 3]
    assert (federation.concepts == federation.concepts[:, :1]).all()
    assert scenario.built_over_time(0, sources, 4, "").num_steps == 4


def test_each_concept_can_be_dealt_the_whole_source(sources: Sources) -> None:
    once = Shifted(clients=4, shift=Rotate((0.0, 180.0)))
    apart = replace(once, per_group=True)
    sizes = [each.built_over_time(0, sources, 1, "sudden").train.steps for each in (once, apart)]
    assert sizes[0] is not None
    assert sizes[1] is not None
    assert sizes[0].tolist() == [[224, 224]] * 4
    assert sizes[1].tolist() == [[449, 449]] * 4


def test_concepts_that_count_as_one_group_do_so_in_time(sources: Sources) -> None:
    shift = Rotate((0.0, 10.0, 180.0), group_of=(0, 0, 1))
    scenario = Shifted(clients=2, shift=shift)
    concepts = scenario.built_over_time(0, sources, None, ((0, 1), (1, 2), (2, 2))).concepts
    assert concepts is not None
    assert concepts.tolist() == [[0, 0, 1], [0, 1, 1]]


def test_federations_over_time_are_functions_of_the_seed(sources: Sources) -> None:
    def built(seed: int) -> Federation:
        return LABEL_SWAPPED_DIGITS.built_over_time(seed, sources, 3, "random")

    one, same, other = built(1), built(1), built(2)
    assert torch.equal(one.train.x, same.train.x)
    assert torch.equal(one.train.y, same.train.y)
    assert np.array_equal(one.concepts, same.concepts)  # type: ignore[arg-type]
    assert not torch.equal(one.train.x, other.train.x)
    assert not np.array_equal(one.concepts, other.concepts)  # type: ignore[arg-type]


def test_what_does_not_go_with_time_is_refused(sources: Sources) -> None:
    scenario = Shifted(clients=4)
    for change in ({"test_split": "test"}, {"validation_fraction": 0.2}):
        changed = replace(scenario, **change)
        with pytest.raises(UsageError, match=f"{next(iter(change))}: .* with time"):
            changed.built_over_time(0, sources, 2, "")
    with pytest.raises(UsageError, match="examples: 300 is not few enough: 12 clients share 1797"):
        replace(scenario, examples=(300,)).built_over_time(0, sources, 2, "")
    with pytest.raises(UsageError, match="time: scenario FewLabels has no steps"):
        FewLabels().built_over_time(0, sources, 2, "")


def test_labels_are_swapped_as_they_are_told() -> None:
    shift = SwapLabels(pairs=((), (1, 2), (5, 6)))
    labels, rng = np.arange(10), np.random.default_rng(0)
    images = np.zeros((10, 1, 2, 2), dtype=np.float32)
    found = [group.transform(images, labels, rng)[1].tolist() for group in shift.make(10, rng)]
    assert found == [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        [0, 2, 1, 3, 4, 5, 6, 7, 8, 9],
        [0, 1, 2, 3, 4, 6, 5, 7, 8, 9],
    ]
    with pytest.raises(UsageError, match=r"pairs: .* is not lists of two labels, or of none"):
        SwapLabels(pairs=((1, 2, 3),))
    with pytest.raises(UsageError, match="pairs: 6 is not below 4, the number of classes"):
        shift.make(4, rng)


def test_each_subfolder_is_a_step(tmp_path: Path, sources: Sources) -> None:
    for step, names in enumerate((("ava", "ben"), ("ben", "cid"), ("ava", "cid"))):
        folder = tmp_path / f"2024-0{step + 1}"
        folder.mkdir()
        for name in names:
            x = np.full((4 + step, 3), step, dtype=np.float32)
            np.savez(folder / f"{name}.npz", x=x, y=np.arange(4 + step) % (2 + step))
    scenario = Folder(str(tmp_path))
    federation = scenario.built_over_time(0, sources, None, "")
    assert federation.names == ("ava", "ben", "cid")
    assert federation.num_classes == 4
    assert federation.train.steps is not None
    assert federation.train.steps.tolist() == [[4, 0, 6], [4, 5, 0], [0, 5, 6]]
    assert federation.at(1, 1).train.x.mean() == 1.0
    assert scenario.built_over_time(0, sources, 1, "").names == ("ava", "ben", "cid")
    with pytest.raises(UsageError, match="steps: 3 is not at most the steps that there are, 2"):
        scenario.built_over_time(0, sources, 3, "")
    with pytest.raises(UsageError, match="schedule: 'A' is not left out: each subfolder is a step"):
        scenario.built_over_time(0, sources, None, "A")
    one = tmp_path / "2024-01"
    with pytest.raises(UsageError, match="is not a folder with two or more subfolders"):
        Folder(str(one)).built_over_time(0, sources, None, "")
    x, y = np.zeros((2, 3), dtype=np.float32), np.zeros(2, dtype=np.int64)
    for file in one.iterdir():
        np.savez(file, x=x, y=y, x_test=x, y_test=y)
    with pytest.raises(UsageError, match="test or validation examples' is not allowed with time"):
        scenario.built_over_time(0, sources, None, "")
