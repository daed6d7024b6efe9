"""The federations of Mehta & Shao 2023 (FLACC), V-A."""

from __future__ import annotations

from umbel.data.scenarios.shifted import Shifted
from umbel.data.shifts import LabelGroups, LabelsAndTurns, Rotate, SwapLabels

ROTATED_MNIST = Shifted(
    source="mnist",
    clients=100,
    shares=(10.0, 20.0, 30.0, 40.0),
    examples=(200, 800),
    shift=Rotate(),
)
"""10, 20, 30 and 40 clients at 0, 90, 180 and 270 degrees, 200 to 800 examples each, 15% of them
for the test."""

GROUPED_CIFAR10 = Shifted(
    source="cifar10", clients=100, examples=(300, 600), shift=LabelGroups(groups=5)
)
"""20 clients hold two of the labels only, another 20 the next two, with 300 to 600 examples each.

The 20 share 10,000 images, so sizes are drawn until they fit: they nearly always do."""

LABEL_SWAPPED_CIFAR10 = Shifted(
    source="cifar10", clients=100, examples=(300, 600), shift=SwapLabels(groups=5)
)
"""100 clients with 300 to 600 examples each; in each of five groups two labels are swapped."""

GROUPED_ROTATED_EMNIST = Shifted(
    source="emnist",
    split="train+test",
    clients=100,
    shares=(35.0, 15.0, 35.0, 15.0),
    examples=(200, 800),
    shift=LabelsAndTurns(labels=(tuple(range(36, 62)), tuple(range(10, 36))), angles=(0.0, 90.0)),
)
"""50 clients hold lower case letters, 50 upper case, and 15 of either 50 have turned them by 90
degrees; 200 to 800 examples each.

Models have all 62 outputs, as the paper's. The sizes take about 25,000 letters of each case."""
