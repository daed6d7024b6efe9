"""The federations of Lin et al. 2024, III-A.1 and Fig. 2: groups that hold some classes each."""

from __future__ import annotations

from umbel.data.scenarios.overlapping_labels import FIG_2_MNIST, OverlappingLabels

LIN_MNIST = OverlappingLabels(
    source="mnist", split="train+test", clients=80, labels=FIG_2_MNIST, images_per_label=6000
)
"""Fig. 2: 80 devices share 6,000 images of each digit.

The training split has too few images of some digits (5,421 fives), so both splits are combined; the
test images are the remaining ones, 313 of each digit, since there are 6,313 fives."""

LIN_FASHION_MNIST = OverlappingLabels(
    source="fashion_mnist",
    test_split="test",
    clients=80,
    labels=(
        (0, 1, 2, 3, 4, 6, 8, 9),
        (0, 1, 2, 4, 5, 6, 7, 8),
        (0, 1, 2, 3, 4, 6, 7, 8),
        (0, 1, 2, 3, 4, 5, 6, 9),
    ),
    images_per_label=6000,
)
"""Fig. 2: 80 devices share the 6,000 images of each class."""

LIN_CIFAR10 = OverlappingLabels(
    source="cifar10",
    test_split="test",
    clients=80,
    labels=(
        (0, 1, 2, 3, 4, 6, 7, 9),
        (0, 1, 2, 3, 5, 7, 8, 9),
        (0, 1, 2, 3, 4, 5, 6, 8),
        (0, 1, 2, 3, 4, 5, 7, 9),
    ),
    images_per_label=5000,
)
"""Fig. 2: 80 devices share the 5,000 images of each class."""

LIN_EMNIST = OverlappingLabels(
    source="emnist-merged",
    split="train+test",
    clients=200,
    labels=tuple(
        tuple(sorted(set(range(47)) - {(group + 8 * n) % 47 for n in range(7)}))
        for group in range(8)
    ),
    images_per_label="all",
)
"""III-A.1: 200 devices in eight groups, which hold 40 of 47 classes each.

The paper does not print which classes: here group k lacks the seven classes k, k + 8, ..., k + 48,
modulo 47, so that every group lacks about two digits, any two groups have 33 to 35 classes in
common, and each class is held by six or seven groups. The paper does not state the number of images
either: here 85% of the images of each class are for training."""
