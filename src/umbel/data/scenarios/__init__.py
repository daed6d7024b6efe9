"""Recipes for federations, by the names that experiments call them."""

from umbel.data.scenarios.base import Scenario
from umbel.data.scenarios.folder import Folder
from umbel.data.scenarios.shifted import Shifted
from umbel.data.shifts import Rotate, SwapLabels

ROTATED_DIGITS = Shifted()
"""scikit-learn's 1,797 handwritten digits: 20 clients, turned by 0, 90, 180 or 270 degrees."""

ROTATED_MNIST = Shifted(
    source="mnist",
    clients=100,
    shares=(10.0, 20.0, 30.0, 40.0),
    examples=(200, 800),
    shift=Rotate(),
)
"""Mehta & Shao 2023, V-A: 10, 20, 30 and 40 clients at 0, 90, 180 and 270 degrees, 200 to 800
examples each, 15% of them for the test."""

LABEL_SWAPPED_DIGITS = Shifted(shift=SwapLabels(groups=4))
"""20 clients of digits in four groups; in each group two labels are swapped."""

SCENARIOS: dict[str, Scenario | type[Scenario]] = {
    "rotated-digits": ROTATED_DIGITS,
    "label-swapped-digits": LABEL_SWAPPED_DIGITS,
    "rotated-mnist": ROTATED_MNIST,
    "shifted": Shifted,
    "folder": Folder,
}
"""A value stands for itself with some fields changed, a type for its defaults."""
