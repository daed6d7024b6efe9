"""Gu et al. 2024, V: the federations as the paper states them."""

from __future__ import annotations

import numpy as np

from umbel.data.scenarios import ROTATED_CIFAR10
from umbel.data.sources import Sources


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
    sums = [np.sort(half.sum((1, 2, 3))) for half in np.split(x.astype(np.float64), 2)]
    np.testing.assert_allclose(sums[0], sums[1], rtol=1e-12)
    turned = np.rot90(x[50_000], 2, axes=(1, 2))
    assert any(np.array_equal(turned, image) for image in x[:50_000])
