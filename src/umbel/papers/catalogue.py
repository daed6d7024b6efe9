"""All reproductions by name."""

from __future__ import annotations

from collections.abc import Mapping

from umbel.papers import (
    gu2024,
    gu2024_others,
    kim2024_angles,
    kim2024_four_angles,
    kim2024_mixtures,
    kim2024_networks,
    kim2024_regressions,
    lin2024,
    mehta2023_faults,
    mehta2023_settings,
)
from umbel.papers.base import Reproduction

REPRODUCTIONS: Mapping[str, Reproduction] = {
    reproduction.name: reproduction
    for reproduction in (
        *mehta2023_settings.REPRODUCTIONS,
        *mehta2023_faults.REPRODUCTIONS,
        *kim2024_regressions.REPRODUCTIONS,
        *kim2024_angles.REPRODUCTIONS,
        *kim2024_four_angles.REPRODUCTIONS,
        *kim2024_mixtures.REPRODUCTIONS,
        *kim2024_networks.REPRODUCTIONS,
        *gu2024.REPRODUCTIONS,
        *gu2024_others.REPRODUCTIONS,
        *lin2024.REPRODUCTIONS,
    )
}
