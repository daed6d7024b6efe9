"""What a scenario is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from umbel.data.federation import Federation
from umbel.data.sources import Sources


@dataclass(frozen=True)
class Scenario(ABC):
    """A seeded recipe for a federation."""

    @abstractmethod
    def build(self, seed: int, sources: Sources) -> Federation:
        """The federation of this seed. Raises `ValueError` where it can't be built."""
