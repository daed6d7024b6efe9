"""All reproductions by name."""

from __future__ import annotations

from collections.abc import Mapping

from umbel.papers import (
    kim2024_angles,
    kim2024_four_angles,
    kim2024_mixtures,
    kim2024_regressions,
    lin2024,
)
from umbel.papers.base import Reproduction

REPRODUCTIONS: Mapping[str, Reproduction] = {
    reproduction.name: reproduction
    for reproduction in (
        *kim2024_regressions.REPRODUCTIONS,
        *kim2024_angles.REPRODUCTIONS,
        *kim2024_four_angles.REPRODUCTIONS,
        *kim2024_mixtures.REPRODUCTIONS,
        *lin2024.REPRODUCTIONS,
    )
}
