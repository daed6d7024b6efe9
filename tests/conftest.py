"""Settings of the test run, and fixtures that several files share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from umbel.data.sources import DATA_DIR_VARIABLE, Sources

settings.register_profile("umbel", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("umbel")
torch.set_num_threads(1)  # the tensors are tiny: threads would only wait for each other


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """Sources that see no data directory and have a cache of their own."""
    return Sources(None, tmp_path / "cache")


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Sources with the real data sets, where the user has them."""
    directory = os.environ.get(DATA_DIR_VARIABLE)
    if not directory:
        pytest.skip(f"{DATA_DIR_VARIABLE} does not name a directory with MNIST and others")
    return Sources(Path(directory), tmp_path_factory.mktemp("cache"))
