"""The federations of Gu et al. 2024 (LCFL), V."""

from __future__ import annotations

from umbel.data.scenarios.consecutive_labels import ConsecutiveLabels
from umbel.data.scenarios.few_labels import FewLabels
from umbel.data.scenarios.shifted import Shifted
from umbel.data.shifts import Rotate

ROTATED_MNIST_LCFL = Shifted(
    source="mnist", test_split="test", clients=1200, per_group=True, examples=(200,), shift=Rotate()
)
"""Table II: the 300 clients of each angle share the 60,000 images, and the 10,000 images of the
published test split. With 2,400 clients (Table III) each has 100 training examples."""

ROTATED_CIFAR10 = Shifted(
    source="cifar10",
    test_split="test",
    clients=200,
    per_group=True,
    shift=Rotate(angles=(0.0, 180.0)),
)
"""Fig. 5: the 100 clients of each of two angles share the 50,000 images, and the 10,000 of the
published test split."""

CONSECUTIVE_LETTERS = ConsecutiveLabels(source="emnist-a-to-j", split="train+test", clients=200)
"""The paper's "FEMNIST", which it takes from FedProx: device u of 200 holds the lower case letters
u, u + 1 and u + 2 of a to j, in equal numbers, about 95 images, a tenth of them for the test.

Devices with the same letters are one of ten planted groups. Of a letter with too few images, as in
an excerpt of EMNIST, each gets fewer, in proportion. FedProx's script gives several devices the
same images; here no two have one in common."""

LETTERS = FewLabels(source="emnist-a-to-j", split="train+test", clients=200, labels_per_client=3)
"""As the paper's text reads alone: 200 devices hold three of the lower case letters a to j each,
drawn at random, without planted groups. Devices that hold a letter share all its images."""
