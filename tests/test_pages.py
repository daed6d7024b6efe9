"""Every document runs from top to bottom in an empty folder.

Runs are shorter here; `python -m tests.pages` makes them as they stand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import PAGES, run_page


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, short=True)
