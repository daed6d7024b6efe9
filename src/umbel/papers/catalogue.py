"""All reproductions by name."""

from __future__ import annotations

from collections.abc import Mapping

from umbel.papers.base import Reproduction
from umbel.papers.gu2024 import cells as gu2024
from umbel.papers.kim2024 import images, networks, regressions
from umbel.papers.lin2024 import cells as lin2024
from umbel.papers.mehta2023 import cells as mehta2023
from umbel.papers.mehta2023 import others

REPRODUCTIONS: Mapping[str, Reproduction] = {
    reproduction.name: reproduction
    for module in (mehta2023, others, regressions, images, networks, gu2024, lin2024)
    for reproduction in module.REPRODUCTIONS
}
