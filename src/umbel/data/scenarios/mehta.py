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
"""10, 20, 30 and 40 clients at 0, 90, 180 and 270 degrees, with 200 to 800 examples each, 15% of
them for the test."""

GROUPED_CIFAR10 = Shifted(
    source="cifar10", clients=100, examples=(300, 600), shift=LabelGroups(groups=5)
)
"""20 clients hold only two labels, the next 20 the next two, with 300 to 600 examples each.

Each 20 clients share 10,000 images. Sizes are drawn until they fit, as they nearly always do."""

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
"""50 clients hold lower case letters, 50 upper case letters, and for 15 clients of each 50 they are
rotated by 90 degrees; 200 to 800 examples each.

Models have all 62 outputs, as in the paper. About 25,000 letters of each case are used."""
