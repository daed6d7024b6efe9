"""All reproductions by name."""

from __future__ import annotations

from collections.abc import Mapping

from umbel.papers import kim2024
from umbel.papers.base import Reproduction

REPRODUCTIONS: Mapping[str, Reproduction] = {
    reproduction.name: reproduction for reproduction in (*kim2024.REPRODUCTIONS,)
}
