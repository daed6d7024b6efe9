"""Ways to the same numbers: one for any module, and faster ones for some."""

from umbel.kernels.base import Kernel
from umbel.kernels.chain import Chain
from umbel.kernels.dense import Dense
from umbel.kernels.general import General
from umbel.kernels.in_place import InPlace
from umbel.kernels.modules import Modules

__all__ = ["Chain", "Dense", "General", "InPlace", "Kernel", "Modules"]
