"""Kim et al. 2024, F.5, F.7 and F.8: groups, sizes and splits as the paper states them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.scenarios.kim import MNIST_AND_FASHION, PERMUTED_CIFAR10, ROTATED_MNIST_4
from umbel.data.scenarios.shifted import Shifted
from umbel.data.scenarios.together import Together
from umbel.data.shifts import Rotate, SwapLabels
from umbel.data.sources import Sources
from umbel.experiment.toml_file import structured


def upright(sources: Sources, name: str) -> dict[bytes, int]:
    """The label of each image of a source."""
    arrays = sources.load(name, "train+test")
    images = arrays.images(np.arange(len(arrays.y)))
    return {image.tobytes(): int(y) for image, y in zip(images, arrays.y, strict=True)}


def images(federation: Federation, client: int, turn: int = 0) -> list[bytes]:
    """Training and test images of a client, turned back by so many quarters."""
    both = torch.cat([federation.train.of(client)[0], federation.test.of(client)[0]])
    back = np.ascontiguousarray(np.rot90(both.numpy(), -turn, axes=(2, 3)))
    return [image.tobytes() for image in back]


def check_split(federation: Federation, groups: list[int], size: int) -> None:
    assert federation.groups is not None
    assert np.bincount(federation.groups).tolist() == groups
    sizes = federation.train.sizes + federation.test.sizes
    assert set(sizes.tolist()) == {size}
    np.testing.assert_allclose(federation.test.sizes / sizes, 0.3, atol=0.001)


@pytest.mark.thorough
def test_rotated_mnist_4_is_all_of_mnist_over_40_clients(real_data: Sources) -> None:
    federation = ROTATED_MNIST_4.build(0, real_data)
    check_split(federation, [10] * 4, 1750)
    held = [image for client in range(40) for image in images(federation, client, client // 10)]
    assert set(held) == set(upright(real_data, "mnist"))


@pytest.mark.thorough
def test_half_of_the_clients_of_permuted_cifar10_add_five_to_labels(real_data: Sources) -> None:
    federation = PERMUTED_CIFAR10.build(0, real_data)
    check_split(federation, [10, 10], 3000)
    true = upright(real_data, "cifar10")
    for client, offset in ((0, 0), (9, 0), (10, 5), (19, 5)):
        x, y = federation.train.of(client)
        expected = [(true[image.tobytes()] + offset) % 10 for image in x.numpy()]
        assert y.tolist() == expected


@pytest.mark.thorough
def test_a_small_federation_is_a_function_of_its_seed(real_data: Sources) -> None:
    small = replace(ROTATED_MNIST_4, clients=12, examples=(30,))
    federation, again, other = (small.build(seed, real_data) for seed in (0, 0, 1))
    assert federation.train.sizes.tolist() == [21] * 12
    assert torch.equal(federation.train.x, again.train.x)
    assert not torch.equal(federation.train.x, other.train.x)


def test_parts_are_drawn_independently_and_any_number_of_clients_is_divided(
    sources: Sources,
) -> None:
    named = structured({"name": "mnist-and-fashion", "clients": 64}, Scenario)
    assert named == replace(MNIST_AND_FASHION, clients=64)
    digits = Shifted(examples=(30,), shift=Rotate(angles=(0.0, 90.0)))
    both = Together(parts=(digits, replace(digits, shift=SwapLabels(groups=1))), clients=7)
    federation = both.build(0, sources)
    assert federation.groups is not None
    assert federation.groups.tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert not torch.equal(federation.train.of(0)[0], federation.train.of(4)[0])
    assert torch.equal(federation.train.x, both.build(0, sources).train.x)
    smaller = replace(both, examples=(20,)).build(0, sources)
    assert set((smaller.train.sizes + smaller.test.sizes).tolist()) == {20}
    with pytest.raises(UsageError, match="clients: 1 is not at least one for each of 2 parts"):
        replace(both, clients=1)
    with pytest.raises(UsageError, match=r"parts: \(\) is not a list with at least one scenario"):
        Together(parts=())
