"""Faster ways to the same numbers, for modules and steps of known kinds."""

from umbel.kernels.dense import Dense
from umbel.kernels.in_place import InPlace

__all__ = ["Dense", "InPlace"]
