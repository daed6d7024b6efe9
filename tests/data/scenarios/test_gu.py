"""Gu et al. 2024, V: the federations as the paper states them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from umbel.checks import UsageError
from umbel.data.scenarios.consecutive_labels import ConsecutiveLabels
from umbel.data.scenarios.few_labels import FewLabels
from umbel.data.scenarios.gu import LETTERS, ROTATED_CIFAR10
from umbel.data.sources import Sources


@pytest.mark.thorough
def test_each_angle_of_rotated_cifar10_has_100_clients_that_share_all_images(
    real_data: Sources,
) -> None:
    federation = ROTATED_CIFAR10.build(0, real_data)
    assert federation.groups is not None
    assert np.bincount(federation.groups).tolist() == [100, 100]
    assert set(federation.train.sizes.tolist()) == {500}
    assert set(federation.test.sizes.tolist()) == {100}
    expected = np.sort(real_data.load("cifar10").y)
    x, y = federation.train.x.numpy(), federation.train.y.numpy()
    for group in (0, 1):
        assert np.array_equal(np.sort(y[group * 50_000 :][:50_000]), expected)
    sums = x.sum((1, 2, 3), dtype=np.float64)
    np.testing.assert_allclose(np.sort(sums[50_000:]), np.sort(sums[:50_000]), rtol=1e-9)
    for row in (50_000, 99_999):
        alike = x[:50_000][np.isclose(sums[:50_000], sums[row], rtol=1e-9)]
        assert any(np.array_equal(np.rot90(x[row], 2, axes=(1, 2)), image) for image in alike)


@pytest.mark.thorough
def test_200_devices_hold_three_of_ten_letters_each_and_share_them_all(real_data: Sources) -> None:
    federation = LETTERS.build(0, real_data)
    assert federation.groups is None
    assert federation.num_clients == 200
    assert federation.num_classes == 10
    held = [set(federation.train.of(client)[1].tolist()) for client in range(200)]
    assert {len(labels) for labels in held} == {3}
    assert len({frozenset(labels) for labels in held}) > 60  # of 120
    emnist = real_data.load("emnist", "train+test")
    letters = np.flatnonzero((emnist.y >= 36) & (emnist.y < 46))
    sizes = federation.train.sizes + federation.test.sizes
    assert sizes.sum() == len(letters)
    np.testing.assert_allclose(federation.test.sizes, 0.15 * sizes, atol=0.51)
    images = emnist.images(letters)
    labels = emnist.y[letters] - 36
    true = {image.tobytes(): int(label) for image, label in zip(images, labels, strict=True)}
    for client in (0, 199):
        x, y = federation.train.of(client)
        assert [true[image.tobytes()] for image in x.numpy()] == y.tolist()


def test_letters_of_fedprox_are_three_in_a_row_in_ten_groups(sources: Sources) -> None:
    scenario = ConsecutiveLabels(clients=30, log_examples=(2.5, 1.0))
    made, again = scenario.build(0, sources), scenario.build(0, sources)
    assert torch.equal(made.train.x, again.train.x)
    assert made.groups is not None
    assert made.groups.tolist() == [client % 10 for client in range(30)]
    for client in range(30):
        labels = torch.cat([made.train.of(client)[1], made.test.of(client)[1]])
        counts = np.bincount(labels.numpy(), minlength=10)
        assert set(np.flatnonzero(counts)) == {(client + n) % 10 for n in range(3)}
        assert len(set(counts[counts > 0].tolist())) == 1
    sizes = made.train.sizes + made.test.sizes
    assert sizes.max() > 3 * sizes.min()
    np.testing.assert_allclose(made.test.sizes, 0.1 * sizes, atol=0.51)


def test_labels_that_are_scarce_are_divided_in_proportion(sources: Sources) -> None:
    made = ConsecutiveLabels(clients=100).build(0, sources)  # these want 9,500 of 1,797 images
    assert 1500 < len(made.train.y) + len(made.test.y) <= 1797
    with pytest.raises(UsageError, match="clients: 300 is not few enough: 300 that hold label 0"):
        ConsecutiveLabels(clients=1000).build(0, sources)
    for change in ({"clients": 0}, {"labels_per_client": 0}, {"log_examples": (99.0, 1.0)}):
        with pytest.raises(UsageError, match=f"{next(iter(change))}: .* is not"):
            ConsecutiveLabels(**change)


def test_clients_with_few_labels_are_a_function_of_the_seed_and_may_be_small(
    sources: Sources,
) -> None:
    small = FewLabels(clients=6, labels_per_client=2, examples=(10, 20))
    federation, again, other = (small.build(seed, sources) for seed in (0, 0, 1))
    assert torch.equal(federation.train.x, again.train.x)
    assert not torch.equal(federation.train.y, other.train.y)
    sizes = federation.train.sizes + federation.test.sizes
    assert 10 <= sizes.min() <= sizes.max() <= 20
    assert all(len(set(federation.train.of(client)[1].tolist())) <= 2 for client in range(6))
    with pytest.raises(UsageError, match="labels_per_client: 11 is not at most 10"):
        FewLabels(labels_per_client=11).build(0, sources)
    said = "clients: 1797 is not few enough: the 204 that hold label 2 share 177 examples"
    with pytest.raises(UsageError, match=said):
        FewLabels(clients=1797, labels_per_client=1).build(0, sources)
    with pytest.raises(UsageError, match="clients: 1798 is not few enough: they share 1797 exam"):
        FewLabels(clients=1798).build(0, sources)
    for change in ({"clients": 0}, {"labels_per_client": 0}, {"examples": (3, 2)}):
        with pytest.raises(UsageError, match=f"{next(iter(change))}: .* is not"):
            FewLabels(**change)
