"""Engines, which do clients' work: one after another, or many in one batched program."""

from umbel.engines.choice import EngineSettings, make_engine
from umbel.engines.sequential import Sequential
from umbel.engines.vectorised import Vectorised

__all__ = ["EngineSettings", "Sequential", "Vectorised", "make_engine"]
