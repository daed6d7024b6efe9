"""Runs of one name are pooled as seeds only where nothing but the seed differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import umbel
from tests.folder.saved import LOCAL, make_run
from umbel import IFCA, FedAvg, FixedClusters, RandomClusters, Result
from umbel.result.outcomes import by_method
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


def test_controls_of_one_method_are_one_row_whatever_was_found_under_each_seed(
    tmp_path: Path,
) -> None:
    name = "ifca-digits,algorithm.num_clusters=3,control=random-clusters"
    runs = [
        make_run(algorithm=RandomClusters(sizes=sizes, local=LOCAL), seed=seed).save(
            tmp_path / f"{name}-seed{seed}", 1
        )
        for seed, sizes in enumerate([(3, 3), (2, 2, 2), (5, 1)])
    ]
    ((row, seeded),) = by_method(runs)
    assert row == "ifca-digits num_clusters=3 (random clusters)"
    assert len(seeded) == 3


def test_controls_of_a_methods_variants_are_rows_of_their_own(tmp_path: Path) -> None:
    for seed, clusters in enumerate([2, 3]):
        place = tmp_path / f"comparison-{clusters}"
        make_run(algorithm=IFCA(clusters, LOCAL), seed=seed).save(place / f"mine-seed{seed}", 1)
        control = make_run(algorithm=RandomClusters(sizes=(4, 2), local=LOCAL), seed=seed)
        control.save(place / f"mine,control=random-clusters-seed{seed}", 1)
    assert named([umbel.load(folder.path) for folder in umbel.results(tmp_path).folders]) == {
        "mine num_clusters=2": [0],
        "mine num_clusters=2 (random clusters)": [0],
        "mine num_clusters=3": [1],
        "mine num_clusters=3 (random clusters)": [1],
    }


def test_given_clusters_are_settings_like_others(tmp_path: Path) -> None:
    runs = [
        saved(tmp_path, make_run(algorithm=FixedClusters(clusters, LOCAL), seed=seed))
        for seed, clusters in enumerate([(0, 0, 0, 1, 1, 1), (0, 1, 0, 1, 0, 1)])
    ]
    assert len(named(runs)) == 2


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
