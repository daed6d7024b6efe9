from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import umbel
from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.scenarios.lin import LIN_CIFAR10, LIN_EMNIST, LIN_FASHION_MNIST, LIN_MNIST
from umbel.data.scenarios.overlapping_labels import FIG_2_MNIST, OverlappingLabels
from umbel.data.sources import Sources
from umbel.experiment.toml_file import plain, structured

GLOBAL = OverlappingLabels(local_labels=False)

# Lin et al. 2024, Fig. 2: images of each class in clusters A to D.
MNIST = [
    [1500, 1500, 1500, 2000, 1500, 2000, 1500, 0, 6000, 0],
    [1500, 1500, 1500, 2000, 1500, 0, 1500, 2000, 0, 3000],
    [1500, 1500, 1500, 0, 1500, 2000, 1500, 2000, 0, 3000],
    [1500, 1500, 1500, 2000, 1500, 2000, 1500, 2000, 0, 0],
]
FASHION_MNIST = [
    [1500, 1500, 1500, 2000, 1500, 0, 1500, 0, 2000, 3000],
    [1500, 1500, 1500, 0, 1500, 3000, 1500, 3000, 2000, 0],
    [1500, 1500, 1500, 2000, 1500, 0, 1500, 3000, 2000, 0],
    [1500, 1500, 1500, 2000, 1500, 3000, 1500, 0, 0, 3000],
]
CIFAR10 = [
    [1250, 1250, 1250, 1250, 1666, 0, 2500, 1666, 0, 1666],
    [1250, 1250, 1250, 1250, 0, 1666, 0, 1667, 2500, 1667],
    [1250, 1250, 1250, 1250, 1667, 1667, 2500, 0, 2500, 0],
    [1250, 1250, 1250, 1250, 1667, 1667, 0, 1667, 0, 1667],
]


def table(federation: Federation, num_labels: int = 10) -> NDArray[np.int64]:
    """(K, C) training examples of each label in each group."""
    assert federation.groups is not None
    counts = np.zeros((int(federation.groups.max()) + 1, num_labels), dtype=np.int64)
    for client, group in enumerate(federation.groups):
        counts[group] += np.bincount(federation.train.of(client)[1], minlength=num_labels)
    return counts


def test_images_of_a_label_are_divided_equally_among_its_groups(sources: Sources) -> None:
    counts = table(GLOBAL.build(0, sources))
    assert counts.tolist() == (np.array(MNIST) * 144 // 6000).tolist()
    uneven = table(replace(GLOBAL, images_per_label=100).build(0, sources))
    assert uneven[:, 3].tolist() == [33, 33, 0, 34]


def test_test_examples_have_each_clients_own_label_mix(sources: Sources) -> None:
    federation = GLOBAL.build(0, sources)
    assert federation.test.sizes.sum() == 10 * (174 - 144)  # 174 images of an 8, the scarcest
    for client in range(20):
        held = np.bincount(federation.train.of(client)[1], minlength=10)
        tested = np.bincount(federation.test.of(client)[1], minlength=10)
        assert np.abs(tested - held * 30 / 144).max() <= 1


def test_labels_are_called_by_their_place_in_the_groups_list_unless_told(sources: Sources) -> None:
    local, everywhere = OverlappingLabels().build(3, sources), GLOBAL.build(3, sources)
    assert (local.num_outputs, everywhere.num_outputs) == (8, 10)
    assert torch.equal(local.train.x, everywhere.train.x)
    assert local.groups is not None
    for client, group in enumerate(local.groups):
        for split, truth in ((local.train, everywhere.train), (local.test, everywhere.test)):
            names = np.array(FIG_2_MNIST[group])[split.of(client)[1]]
            assert names.tolist() == truth.of(client)[1].tolist()


def test_the_scenario_is_a_function_of_its_seed(sources: Sources) -> None:
    one, same, other = (OverlappingLabels().build(seed, sources) for seed in (1, 1, 2))
    assert torch.equal(one.train.x, same.train.x)
    assert torch.equal(one.test.y, same.test.y)
    assert not torch.equal(one.train.x, other.train.x)


def test_groups_of_your_own_may_differ_in_length_and_are_written_and_read() -> None:
    labels = [[0, 1, 2], [2, 9]]
    federation = umbel.scenario(
        "overlapping-labels", labels=labels, clients=2, images_per_label=100
    )
    assert federation.num_outputs == 3
    assert federation.train.sizes.tolist() == [250, 150]
    scenario = OverlappingLabels(labels=((0, 1, 2), (2, 9)))
    assert structured(plain(scenario), Scenario) == scenario


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("scenario", "expected"),
    [(LIN_MNIST, MNIST), (LIN_FASHION_MNIST, FASHION_MNIST), (LIN_CIFAR10, CIFAR10)],
    ids=["mnist", "fashion_mnist", "cifar10"],
)
def test_the_splits_of_figure_2_are_the_papers(
    scenario: OverlappingLabels, expected: list[list[int]], real_data: Sources
) -> None:
    federation = replace(scenario, local_labels=False).build(0, real_data)
    assert table(federation).tolist() == expected
    assert federation.groups is not None
    assert np.bincount(federation.groups).tolist() == [20] * 4
    assert federation.test.sizes.sum() == (3130 if scenario is LIN_MNIST else 10_000)
    assert federation.test.sizes.min() > 0


@pytest.mark.parametrize(
    "change",
    [
        {"test_split": "train"},
        {"labels": ()},
        {"labels": ((0, 1), ())},
        {"labels": ((0, 0), (1,))},
        {"labels": ((0, -1),)},
        {"clients": 3},
        {"images_per_label": 0},
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(change))}: .* is not"):
        replace(GLOBAL, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"clients": 1500},
            r"clients: 1500 is not few enough: the 375 of group \d share 3\d\d exam",
        ),
        ({"labels": ((0, 10),), "clients": 5}, "labels: .* is not below 10, the number of classes"),
        (
            {"images_per_label": 174},
            "images_per_label: 174 is not at most 173: there are 174 images of label 8, and some",
        ),
    ],
)
def test_what_can_not_be_built_is_refused(
    change: dict[str, Any], message: str, sources: Sources
) -> None:
    with pytest.raises(UsageError, match=message):
        replace(GLOBAL, **change).build(0, sources)


def test_without_a_number_all_images_but_a_share_of_each_label_are_for_training(
    sources: Sources,
) -> None:
    scenario = replace(GLOBAL, images_per_label="all", test_fraction=0.25)
    federation = scenario.build(0, sources)
    whole = np.bincount(sources.load("digits").y)
    assert table(federation).sum(0).tolist() == [n - round(n * 0.25) for n in whole]
    total = len(federation.train.y) + len(federation.test.y)
    assert 1797 - 20 < total <= 1797
    with pytest.raises(UsageError, match=r"test_fraction: 1\.0 is not in \(0, 1\)"):
        replace(GLOBAL, test_fraction=1.0)


@pytest.mark.thorough
def test_lin_emnist_has_eight_groups_of_25_with_40_of_47_classes_each(real_data: Sources) -> None:
    federation = LIN_EMNIST.build(0, real_data)
    assert federation.groups is not None
    assert np.bincount(federation.groups).tolist() == [25] * 8
    assert federation.num_classes == 40
    held = [set(mine) for mine in LIN_EMNIST.labels]
    assert {len(mine) for mine in held} == {40}
    assert {len(one & other) for one in held for other in held if one != other} == {33, 34, 35}
    assert set().union(*held) == set(range(47))
    glob = replace(LIN_EMNIST, local_labels=False).build(0, real_data)
    assert glob.num_classes == 47
    counts = table(glob, 47)
    whole = np.bincount(real_data.load("emnist-merged", "train+test").y)
    np.testing.assert_allclose(counts.sum(0), 0.85 * whole, atol=0.51)
    for label in range(47):
        shares = counts[counts[:, label] > 0, label]
        assert len(shares) in (6, 7)
        assert shares.max() - shares.min() <= 1
    assert set(np.flatnonzero(counts[3] == 0)) == {3, 4, 11, 19, 27, 35, 43}
    # Test examples have the label mix of the training examples, as many as are left.
    assert len(federation.test.y) > 0.14 * whole.sum()
    assert federation.test.sizes.min() > 0


@pytest.mark.thorough
def test_both_cases_of_fifteen_letters_are_one_class(real_data: Sources) -> None:
    full, merged = (real_data.load(name, "test").y for name in ("emnist", "emnist-merged"))
    names = {int(y): int(z) for y, z in zip(full, merged, strict=True)}
    assert len(set(names.values())) == 47
    upper = {y: y + 26 for y in range(10, 36)}
    one = {chr(y + 55) for y, z in upper.items() if names[y] == names[z]}
    assert one == set("CIJKLMOPSUVWXYZ")
