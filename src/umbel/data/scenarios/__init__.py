"""Recipes for federations, by the names that experiments use."""

from umbel.data.scenarios.base import Scenario
from umbel.data.scenarios.bearing_faults import BearingFaults
from umbel.data.scenarios.channel_state import ChannelState
from umbel.data.scenarios.consecutive_labels import ConsecutiveLabels
from umbel.data.scenarios.few_labels import FewLabels
from umbel.data.scenarios.folder import Folder
from umbel.data.scenarios.gu import (
    CONSECUTIVE_LETTERS,
    LETTERS,
    ROTATED_CIFAR10,
    ROTATED_MNIST_LCFL,
)
from umbel.data.scenarios.kim import (
    CHANNEL_STATE_5,
    EMNIST_DIRICHLET,
    MIXTURE_MNIST,
    MNIST_AND_FASHION,
    PERMUTED_CIFAR10,
    ROTATED_MNIST_4,
    ROTATED_MNIST_8,
)
from umbel.data.scenarios.leaf import LeafUsers
from umbel.data.scenarios.lin import LIN_CIFAR10, LIN_EMNIST, LIN_FASHION_MNIST, LIN_MNIST
from umbel.data.scenarios.linear_regressions import LinearRegressions
from umbel.data.scenarios.mehta import (
    GROUPED_CIFAR10,
    GROUPED_ROTATED_EMNIST,
    LABEL_SWAPPED_CIFAR10,
    ROTATED_MNIST,
)
from umbel.data.scenarios.natural import Natural
from umbel.data.scenarios.natural_tables import FLIGHTS, PACKAGES
from umbel.data.scenarios.overlapping_labels import OverlappingLabels
from umbel.data.scenarios.shifted import Shifted
from umbel.data.scenarios.streams import DRIFTING_MNIST, Streams
from umbel.data.scenarios.table import Table
from umbel.data.scenarios.together import Together
from umbel.data.scenarios.watch import Watch
from umbel.data.scenarios.windows import RecordedWindows
from umbel.data.scenarios.words import Words
from umbel.data.shifts import SwapLabels

ROTATED_DIGITS = Shifted()
"""scikit-learn's 1,797 handwritten digits: 20 clients, rotated by 0, 90, 180 or 270 degrees."""

LABEL_SWAPPED_DIGITS = Shifted(shift=SwapLabels(groups=4))
"""20 clients of digits in four groups; in each group two labels are swapped."""

SCENARIOS: dict[str, Scenario | type[Scenario]] = {
    "rotated-digits": ROTATED_DIGITS,
    "label-swapped-digits": LABEL_SWAPPED_DIGITS,
    "rotated-mnist": ROTATED_MNIST,
    "grouped-cifar10": GROUPED_CIFAR10,
    "label-swapped-cifar10": LABEL_SWAPPED_CIFAR10,
    "grouped-rotated-emnist": GROUPED_ROTATED_EMNIST,
    "femnist": Natural,
    "bearing-faults": BearingFaults,
    "rotated-mnist-8": ROTATED_MNIST_8,
    "rotated-mnist-4": ROTATED_MNIST_4,
    "mixture-mnist": MIXTURE_MNIST,
    "mnist-and-fashion": MNIST_AND_FASHION,
    "channel-state": ChannelState,
    "channel-state-5": CHANNEL_STATE_5,
    "permuted-cifar10": PERMUTED_CIFAR10,
    "emnist-dirichlet": EMNIST_DIRICHLET,
    "rotated-mnist-lcfl": ROTATED_MNIST_LCFL,
    "rotated-cifar10": ROTATED_CIFAR10,
    "letters": LETTERS,
    "consecutive-letters": CONSECUTIVE_LETTERS,
    "lin-mnist": LIN_MNIST,
    "lin-fashion-mnist": LIN_FASHION_MNIST,
    "lin-cifar10": LIN_CIFAR10,
    "lin-emnist": LIN_EMNIST,
    "shifted": Shifted,
    "overlapping-labels": OverlappingLabels,
    "few-labels": FewLabels,
    "consecutive-labels": ConsecutiveLabels,
    "together": Together,
    "linear-regressions": LinearRegressions,
    "streams": Streams,
    "drifting-mnist": DRIFTING_MNIST,
    "folder": Folder,
    "leaf": LeafUsers,
    "table": Table,
    "windows": RecordedWindows,
    "watch": Watch,
    "flights": FLIGHTS,
    "words": Words,
    "packages": PACKAGES,
}
"""Values are recipes in which fields can be changed; a type stands for its defaults."""
