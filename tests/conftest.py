"""Settings of the test run, and fixtures that several files share."""

from __future__ import annotations

import os

# Tensors are tiny: threads would only wait for each other. Libraries read this when they load.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tests.shell import SMALL, Shell
from umbel.data.sources import DATA_DIR_VARIABLE, Sources

settings.register_profile("umbel", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("umbel")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for processes comes first, so that others are tested meanwhile.

    Next comes the longest of the other files, which one process would be alone with at the end.
    """

    def rank(item: pytest.Item) -> tuple[bool, bool]:
        waits = item.get_closest_marker("deployment") is not None
        return not waits, not item.nodeid.startswith("tests/test_pages.py")

    items.sort(key=rank)


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """Sources that see no data directory and have a cache of their own."""
    return Sources(None, tmp_path / "cache")


@pytest.fixture(scope="session")
def real_data() -> Sources:
    """Sources with the real data sets, where the user has them; all processes share the cache."""
    if not os.environ.get(DATA_DIR_VARIABLE):
        pytest.skip(f"{DATA_DIR_VARIABLE} does not name a directory with MNIST and others")
    return Sources.default()


@pytest.fixture
def umbel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """`umbel` in a folder with two experiments, `both/fedavg.toml` and `both/flacc.toml`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "both").mkdir()
    for name in ("fedavg", "flacc"):
        (tmp_path / "both" / f"{name}.toml").write_text(SMALL.format(name=name))
    return Shell(tmp_path, monkeypatch, capsys)


@pytest.fixture
def newcomers(tmp_path: Path) -> Path:
    """A folder with two clients of images like the digits."""
    folder = tmp_path / "newcomers"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in ("north", "south"):
        x = rng.random((12, 1, 8, 8), dtype=np.float32)
        np.savez(folder / f"{name}.npz", x=x, y=rng.integers(0, 10, 12))
    return folder


@pytest.fixture(scope="session", autouse=True)
def plain_terminal() -> Iterator[None]:
    """Here and in child processes, output has 80 columns and no colours, wherever tests run."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COLUMNS", "80")
        for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            environment.delenv(name, raising=False)
        yield


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of tests need not survive a power failure."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """What a command said about logging in an earlier test does not count in this one."""
    logger = logging.getLogger("umbel")
    handlers = list(logger.handlers)
    logger.setLevel(logging.NOTSET)
    yield
    logger.setLevel(logging.NOTSET)
    logger.handlers[:] = handlers
