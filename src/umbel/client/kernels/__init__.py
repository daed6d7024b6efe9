"""Kernels: one for any module, and faster ones for some modules."""

from umbel.client.kernels.base import Kernel
from umbel.client.kernels.chain import Chain
from umbel.client.kernels.dense import Dense
from umbel.client.kernels.general import General
from umbel.client.kernels.in_place import InPlace
from umbel.client.kernels.modules import Modules

__all__ = ["Chain", "Dense", "General", "InPlace", "Kernel", "Modules"]
