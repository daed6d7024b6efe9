"""Mehta & Shao 2023, V-A: groups, sizes, labels and splits as the paper states them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from umbel.data.federation import Federation
from umbel.data.scenarios.mehta import (
    GROUPED_CIFAR10,
    GROUPED_ROTATED_EMNIST,
    LABEL_SWAPPED_CIFAR10,
)
from umbel.data.sources import Sources


def labels(federation: Federation, client: int) -> set[int]:
    """What a client holds, for training or for the test."""
    return {int(y) for split in (federation.train, federation.test) for y in split.of(client)[1]}


def check_sizes(federation: Federation, low: int, high: int) -> None:
    sizes = federation.train.sizes + federation.test.sizes
    assert low <= sizes.min()
    assert sizes.max() <= high
    assert len(set(sizes.tolist())) > 5
    np.testing.assert_allclose(federation.test.sizes / sizes, 0.15, atol=0.5 / sizes.min())


@pytest.mark.thorough
def test_grouped_cifar10_has_five_groups_of_20_with_two_labels_each(real_data: Sources) -> None:
    federation = GROUPED_CIFAR10.build(0, real_data)
    assert federation.groups is not None
    assert np.bincount(federation.groups).tolist() == [20] * 5
    check_sizes(federation, 300, 600)
    held = [labels(federation, client) for client in range(100)]
    for client, group in enumerate(federation.groups):
        assert len(held[client]) == 2
        assert held[client] == held[20 * int(group)]
    assert set().union(*held) == set(range(10))
    assert federation.num_classes == 10


@pytest.mark.thorough
def test_label_swapped_cifar10_swaps_one_pair_in_each_of_five_groups(real_data: Sources) -> None:
    federation = LABEL_SWAPPED_CIFAR10.build(0, real_data)
    arrays = real_data.load("cifar10")
    assert federation.groups is not None
    assert np.bincount(federation.groups).tolist() == [20] * 5
    check_sizes(federation, 300, 600)
    images = arrays.images(np.arange(len(arrays.y)))
    true = {image.tobytes(): int(y) for image, y in zip(images, arrays.y, strict=True)}
    pairs: list[frozenset[int]] = []
    for client in range(0, 100, 20):
        x, y = federation.train.of(client)
        wrong = {
            frozenset((true[image.tobytes()], int(label)))
            for image, label in zip(x.numpy(), y, strict=True)
            if true[image.tobytes()] != label
        }
        assert len(wrong) == 1
        pairs += wrong
    assert len(set(pairs)) == 5


EMNIST = replace(GROUPED_ROTATED_EMNIST, examples=(60, 240))
"""With the sizes that a tenth of EMNIST's letters has room for."""


@pytest.mark.thorough
def test_grouped_rotated_emnist_crosses_case_with_turns(real_data: Sources) -> None:
    federation = EMNIST.build(0, real_data)
    assert federation.groups is not None
    assert np.bincount(federation.groups).tolist() == [35, 15, 35, 15]
    check_sizes(federation, 60, 240)
    lower, upper = set(range(36, 62)), set(range(10, 36))
    held = [labels(federation, client) for client in range(100)]
    assert set().union(*held[:50]) == lower
    assert set().union(*held[50:]) == upper
    assert federation.num_classes == 62
    arrays = real_data.load("emnist", "train+test")
    letters = np.flatnonzero(arrays.y >= 10)
    upright = {image.tobytes() for image in arrays.images(letters)}
    for client, quarters in ((0, 0), (40, 1), (60, 0), (99, 1)):
        x = federation.train.of(client)[0].numpy()
        back = np.ascontiguousarray(np.rot90(x, -quarters, axes=(2, 3)))
        assert all(image.tobytes() in upright for image in back)
