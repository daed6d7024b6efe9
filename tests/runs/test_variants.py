"""Runs of one name are pooled as seeds only where nothing but the seed differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import umbel
from tests.runs.saved import LOCAL, make_run
from umbel import IFCA, FedAvg, Result
from umbel.runs.outcomes import by_method
from umbel.testing import blobs


def saved(folder: Path, run: umbel.Run, rounds: int = 1) -> Result:
    return run.save(folder / f"mine-seed{run.seed}", rounds)


def named(runs: list[Result]) -> dict[str, list[int]]:
    return {name: [run.experiment.seed for run in seeded] for name, seeded in by_method(runs)}


def test_seeds_of_one_experiment_are_one_row_whatever_was_drawn_for_each(tmp_path: Path) -> None:
    runs = [
        saved(tmp_path, make_run(algorithm=FedAvg(LOCAL), federation=blobs(seed=seed), seed=seed))
        for seed in (0, 1, 2)
    ]
    assert named(runs) == {"mine": [0, 1, 2]}
    another = make_run(algorithm=FedAvg(LOCAL), federation=blobs(seed=3), seed=3)
    longer = saved(tmp_path, another, rounds=2)
    assert named([*runs, longer]) == {"mine": [0, 1, 2, 3]}


def test_other_settings_have_rows_of_their_own_named_by_what_differs(tmp_path: Path) -> None:
    faster = replace(LOCAL, lr=0.4)
    runs = [
        saved(tmp_path, make_run(algorithm=FedAvg(LOCAL), seed=0)),
        saved(tmp_path, make_run(algorithm=FedAvg(LOCAL), seed=1)),
        saved(tmp_path, make_run(algorithm=FedAvg(faster), seed=2)),
        saved(tmp_path, make_run(algorithm=IFCA(2, faster), seed=3)),
    ]
    by_name = named(runs)
    assert {tuple(seeds) for seeds in by_name.values()} == {(0, 1), (2,), (3,)}
    assert {"mine name=fedavg lr=0.4", "mine name=ifca lr=0.4"} <= set(by_name)
    whole = by_method(runs)
    assert sum(len(seeded) for _, seeded in whole) == 4
    limited = make_run(algorithm=FedAvg(LOCAL), limits=umbel.Limits(max_share=0.5), seed=4)
    assert set(named([*runs[:2], saved(tmp_path, limited)])) == {
        "mine max_share=0.5",
        "mine max_share=0.9",
    }
