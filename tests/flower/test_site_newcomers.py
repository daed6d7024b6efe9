"""Newcomers to a run over Flower, whose clients' examples stay at the nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import umbel
from tests.algorithms.test_contract import LOCAL
from tests.flower.small import SMALL, site
from umbel.algorithms import Oracle
from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.flower import Settings, serve
from umbel.newcomers import descriptions

TWO_GROUPS = replace(SMALL, algorithm=Oracle(LOCAL), participation=1.0, rounds=1)


def of_group(group: int, names: str) -> Federation:
    """Clients whose inputs tell which group they are of."""
    rng = np.random.default_rng(len(names) + group)
    pairs = [
        (rng.normal(3 * group, 1, (40, 3)).astype(np.float32), rng.integers(0, 2, 40))
        for _ in names
    ]
    groups = [group] * len(names)
    return Federation.from_arrays(pairs, names=list(names), groups=groups, num_classes=2)


def described_at(folder: Path) -> list[int]:
    kept = descriptions.load(folder)
    assert kept is not None
    return kept.clients.tolist()


def test_clients_that_were_away_describe_themselves_when_the_run_is_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "umbel")
    grid = site(tmp_path, of_group(0, "abcdef"), of_group(1, "ghij"), of=TWO_GROUPS)
    grid.configs = {node: {**config, "describe": "true"} for node, config in grid.configs.items()}
    settings = Settings(10, patience=0.3, time_limit=2.0, runs_dir=str(tmp_path / "runs"))
    path = serve(grid, TWO_GROUPS, settings).path
    describe, new = replace(settings, describe=True), of_group(1, "n")

    grid.fate[2] = "gone"
    serve(grid, TWO_GROUPS, describe)
    assert described_at(path) == [0, 1, 2, 3, 4, 5]
    assert "6 of 10 clients have described their inputs; the same `flwr run` asks" in caplog.text
    with pytest.raises(UsageError, match="no client of cluster 1 has described its inputs yet"):
        umbel.load(path).assign(new, labelled=False)

    del grid.fate[2]
    grid.fate[1] = "gone"  # those that have described themselves need not be there again
    # and those that lack may be few: no quorum is asked of them
    serve(grid, TWO_GROUPS, describe)
    assert described_at(path) == list(range(10))
    assert umbel.load(path).assign(new, labelled=False).clusters == {"n": 1}

    asked = len(grid.asked)
    serve(grid, TWO_GROUPS, describe)
    assert len(grid.asked) == asked
