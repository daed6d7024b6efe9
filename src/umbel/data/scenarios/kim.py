"""The federations of Kim et al. 2024 (CFL-GP): 5.2 and F.5 to F.8.

If the paper names a data set without a split, all its images are used, and 30% of each client's
images are for the test, as in F.5.
"""

from __future__ import annotations

from umbel.data.scenarios.channel_state import ChannelState
from umbel.data.scenarios.shifted import Shifted
from umbel.data.scenarios.together import Together
from umbel.data.shifts import MixedTurns, PermuteLabels, Rotate

EIGHT_ANGLES = Rotate(
    angles=(0.0, 15.0, 90.0, 105.0, 180.0, 195.0, 270.0, 285.0),
    group_of=(0, 0, 1, 1, 2, 2, 3, 3),
)
"""The paper prints three lists of angles; this is the list of F.1, in which all neighbours are 15
degrees apart (5.2 has 275 instead of 285, F.5 and G have 185 instead of 195). The true groups are
the four pairs of neighbours."""

ROTATED_MNIST_8 = Shifted(
    source="mnist", split="train+test", clients=32, test_fraction=0.3, shift=EIGHT_ANGLES
)
"""5.2 and F.5: all of MNIST over 32 clients, 30% of each client's images for the test."""

ROTATED_MNIST_4 = Shifted(
    source="mnist", split="train+test", clients=40, test_fraction=0.3, shift=Rotate()
)
"""F.5.1 and F.2: all of MNIST over 40 clients at 0, 90, 180 and 270 degrees."""

MIXTURE_MNIST = Shifted(
    source="mnist", split="train+test", clients=12, test_fraction=0.3, shift=MixedTurns()
)
"""F.5.2: four clients at 0 degrees, four at 180, and four with images at both angles."""

MNIST_AND_FASHION = Together(
    clients=32,
    parts=(
        Shifted(source="mnist", split="train+test", test_fraction=0.3, shift=EIGHT_ANGLES),
        Shifted(
            source="fashion_mnist",
            split="train+test",
            test_fraction=0.3,
            shift=Rotate(angles=(0.0,)),
        ),
    ),
)
"""F.5.3: MNIST at eight angles on half of 32 clients, upright Fashion-MNIST on the other half.

The paper states neither the division of the clients nor the true groups for the ARI. Here these are
four pairs of neighbouring angles as in `ROTATED_MNIST_8`, and Fashion-MNIST as the fifth group."""

CHANNEL_STATE_5 = ChannelState(
    environments=("indoor", "hall", "street", "outdoor", "rural"), clients=20
)
"""F.6, CD2: five distributions of channels over 20 clients.

The paper generates them by a model of the 3GPP, with settings that it does not print: 100,000
channels, 5,000 per client."""

PERMUTED_CIFAR10 = Shifted(
    source="cifar10",
    split="train+test",
    clients=20,
    test_fraction=0.3,
    shift=PermuteLabels(offsets=(0, 5)),
)
"""F.7: all of CIFAR-10 over 20 clients; for half of them label y becomes (y + 5) mod 10."""

EMNIST_DIRICHLET = Shifted(
    source="emnist",
    split="train+test",
    clients=80,
    test_fraction=0.3,
    label_alpha=1.0,
    shift=Rotate(angles=(0.0, 180.0)),
)
"""F.8: 80 clients with labels by a Dirichlet distribution; half are rotated by 180 degrees.

The paper draws 200,000 examples, 2,500 per client; here clients share the whole source."""
