"""What is timed gives equal results, and what the page tells is what was kept."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import (
    cuts,
    few_values,
    given_clusters,
    libraries,
    normalised,
    precision,
    released,
    sequences,
    words,
    workers,
)
from benchmarks.measure import difference
from benchmarks.products import KINDS, times_faster
from benchmarks.report import markdown, precision_markdown
from benchmarks.rounds import measured, sizes
from benchmarks.server import STEPS
from benchmarks.stopwatch import PARTS
from benchmarks.workloads import contests

import umbel
from umbel.algorithms import FLHC, FedAvg, FixedClusters, Oracle
from umbel.algorithms.base import Algorithm
from umbel.client.work import Gradient, LocalTraining, Quantised
from umbel.client.work.feature import Feature
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.engines.precision import bf16_units
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.networks import MLP, CharTransformer
from umbel.result.run import Experiment, Run
from umbel.result.tables import results
from umbel.testing import blobs, mlp

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["W1", "W2 training", "W2 cross-loss", "W3", "W6, 12 clients"])
def test_every_way_gives_the_results_of_the_plain_loop(name: str) -> None:
    contest = contests(short=True, device="cpu")[name]()
    ways, plain = contest.checked or (contest.ours, contest.plain)
    expected = plain()
    for label, way in ways.items():
        assert max(map(difference, way(), expected)) <= contest.tolerance[label], label


@pytest.mark.parametrize("name", STEPS)
def test_the_steps_of_the_server_run(name: str) -> None:
    set_up, _, _ = STEPS[name]
    assert set_up(200)() is not None


def test_the_page_shows_the_kept_results() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    shown = page.split("<!-- results -->\n")[1].split("<!-- end -->")[0]
    kept = json.loads((ROOT / "benchmarks" / "results" / "cpu.json").read_text())
    assert shown == markdown(kept)


@pytest.mark.parametrize("name", ["fedavg", "ifca", "cfl-gp"])
def test_the_parts_of_a_round_add_up_to_it(name: str) -> None:
    for taken in measured(sizes(short=True)["W1"], name, rounds=2):
        parts = [taken[part] for part in PARTS]
        assert min(parts) >= 0
        assert taken["engine"] > 0
        assert taken["evaluation"] > 0
        assert sum(parts) <= 1.01 * taken["whole"] + 0.001


@pytest.mark.parametrize("name", workers.CASES)
def test_any_number_of_workers_is_timed(name: str) -> None:
    assert set(workers.compared(name, [1, 2], repeats=1, sizes=[5, 8, 3], epochs=2)) == {1, 2}


def test_batched_transformers_give_what_one_client_after_another_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequences, "EXAMPLES", 5)
    monkeypatch.setattr("benchmarks.measure.ENOUGH", 0.0)
    case = sequences.Case(CharTransformer(width=8, heads=2, layers=1, hidden=8), 3, 4)
    assert sequences.compared(case, repeats=1)[0].median > 0


def test_normalised_networks_are_timed_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalised, "CLIENTS", 3)
    monkeypatch.setattr(normalised, "EXAMPLES", 5)
    monkeypatch.setattr("benchmarks.measure.ENOUGH", 0.0)
    case = normalised.Case(units=4, batch_size=2)
    timings = normalised.compared(case, repeats=1)
    assert all(timing.median > 0 for timing in timings)
    assert normalised.row(case, timings).startswith("| 4 | 3,226 | 2 | ")


def test_a_run_whose_clusters_are_known_from_the_first_round_has_one_course(tmp_path: Path) -> None:
    scenario = replace(ROTATED_DIGITS, clients=4, examples=(20,))
    local = LocalTraining(epochs=1)
    experiment = Experiment(scenario, MLP((4,)), Oracle(local), rounds=3, evaluate_every=1)
    folder = RunFolder.begin(tmp_path, experiment)
    for _ in execute(folder, Sources.default()):
        pass
    for after, rounds in ((0, [1, 2, 3]), (2, [3])):
        courses = list(given_clusters.courses(umbel.load(folder.path), 3, after))
        assert [number for number, _, _ in courses] == rounds
        for _, found, given in courses:
            assert given == pytest.approx(found)


def test_a_run_without_rounds_to_compare_with_given_clusters_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = replace(ROTATED_DIGITS, clients=4, examples=(20,))
    experiment = Experiment(scenario, MLP((4,)), Oracle(LocalTraining(epochs=1)), rounds=3)
    folder = RunFolder.begin(tmp_path, replace(experiment, evaluate_every=2))
    for _ in execute(folder, Sources.default()):
        pass
    place = str(folder.path)
    with pytest.raises(SystemExit, match="no round up to 1 is evaluated in both"):
        given_clusters.main([place, "--rounds", "1"])
    monkeypatch.setattr(given_clusters, "reached", lambda *_: pytest.fail("rounds were made"))
    for after, rounds, compared in (("2", "2", 2), ("3", "70", 3)):
        with pytest.raises(SystemExit, match=f"after: {after} is not below {compared}"):
            given_clusters.main([place, "--rounds", rounds, "--after", after])


def test_a_run_of_fl_hc_would_have_its_clusters_again_by_a_cut_that_is_shown(
    tmp_path: Path,
) -> None:
    scenario = replace(ROTATED_DIGITS, clients=8, examples=(40,))
    method = FLHC(threshold=0.6, cluster_round=1, local=LocalTraining(epochs=3))
    folder = RunFolder.begin(tmp_path, Experiment(scenario, MLP((8,)), method, rounds=2))
    for _ in execute(folder, Sources.default()):
        pass
    result = umbel.load(folder.path)
    shown = {number: (low, high, ari) for number, low, high, ari in cuts.cuts(result)}
    assert list(shown) == [8, 7, 6, 5, 4, 3, 2, 1]
    low, high, ari = shown[result.num_clusters]
    assert low <= 0.6 <= high
    assert ari == pytest.approx(result.last.ari)


def test_folders_of_other_things_are_refused(tmp_path: Path) -> None:
    for module in (cuts, given_clusters):
        with pytest.raises(SystemExit, match="is not the folder of a run"):
            module.main([str(tmp_path)])
    scenario = replace(ROTATED_DIGITS, clients=4, examples=(20,))
    oracle = Oracle(LocalTraining(epochs=1))
    folder = RunFolder.begin(tmp_path, Experiment(scenario, MLP((4,)), oracle, rounds=1))
    for _ in execute(folder, Sources.default()):
        pass
    with pytest.raises(SystemExit, match="is not a run of fl-hc that has clustered"):
        cuts.main([str(folder.path)])


def test_methods_on_words_are_judged_by_perplexity_beside_one_model(tmp_path: Path) -> None:
    local = LocalTraining(epochs=1)
    language = ("german", "french") * 4
    federation = replace(blobs(), groups=None, attributes={"language": language})
    methods: dict[str, Algorithm[Any]] = {
        "fedavg": FedAvg(local),
        "fixed": FixedClusters((0, 1) * 4, local),
    }
    for name, seed in product(methods, range(2)):
        run = Run(methods[name], federation, mlp(), seed=seed, metrics=("perplexity",))
        run.save(tmp_path / f"{name}-words-test-seed{seed}", 2)
    rows = {row[0]: row for row in words.table(results(tmp_path))}
    assert list(rows["`fixed`"][2:4]) == ["1.00, 1.00", "2, 2"]
    assert list(rows["`fedavg`"][2:]) == ["0.00, 0.00", "1, 1", ""]
    means = [float(rows[name][1].split()[0]) for name in ("`fedavg`", "`fixed`")]
    gain, interval = rows["`fixed`"][4].split(" ", 1)
    assert float(gain) == pytest.approx(means[0] - means[1], abs=0.011)
    low, high = (float(end) for end in interval.strip("()").split(" to "))
    assert low < float(gain) < high


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_every_kind_are_timed(kind: str) -> None:
    assert times_faster(KINDS[kind].build((4, 8, 6)), repeats=1) > 0


@pytest.mark.skipif(not bf16_units(), reason="this processor has no products of bfloat16 numbers")
def test_both_precisions_of_an_experiment_are_told() -> None:
    case = precision.Case("IFCA", "ifca-digits", ("rounds=2",))
    rows = precision.agreement(case, seeds=[0])
    assert [row["precision"] for row in rows] == ["fp32", "bf16"]
    assert precision_markdown({"machine": "mine", "experiments": rows}).count("IFCA, 2 rounds") == 2


def test_the_released_rule_asks_about_one_model_at_first_and_then_about_each_ones_own() -> None:
    clients = released.Clients(Run(FedAvg(), blobs(), mlp()), 8, seed=0)
    before = clients.models.clone()
    first, *_ = released.cfl_gp(clients, rounds=1, until=1)
    assert len(set(first.tolist())) > 1
    # Each model moved by the mean gradient on the first, of the clients that came to it.
    again = released.Clients(Run(FedAvg(), blobs(), mlp()), 8, seed=0)
    sent = again.gradients(torch.zeros_like(first))
    for k in set(first.tolist()):
        expected = before[k] - released.LR * sent[first == k].mean(0)
        torch.testing.assert_close(clients.models[k], expected)


def test_the_released_rule_takes_the_model_that_is_right_most_often_the_first_on_a_tie() -> None:
    clients = released.Clients(Run(FedAvg(), blobs(), mlp()), 1000, seed=0)
    clients.models[:] = clients.models[0]
    assert set(next(released.ifca(clients, rounds=1)).tolist()) == {0}
    right = Run(FedAvg(LocalTraining(lr=0.5)), blobs(), mlp())
    *_, (state, _) = right.rounds(10)
    clients.models[2] = state.models[0]
    rights = torch.zeros(len(clients), released.K)
    for client in range(len(clients)):
        x, y = clients.federation.train.of(client)
        for k, model in enumerate(clients.models):
            rights[client, k] = (clients.net.module(model)(x).argmax(1) == y).sum()
    chosen = next(released.ifca(clients, rounds=1))
    assert chosen.tolist() == rights.argmax(1).tolist()
    assert 2 in chosen


def test_decimals_are_cut_for_what_is_named_alone() -> None:
    step = Quantised(Gradient(8), 2)
    ways = few_values.WAYS
    cut = {name: (way(step), way(Feature(step))) for name, way in ways.items()}
    rounded = few_values.Rounded(Gradient(8), 2)
    assert cut == {
        "cut": (step, Feature(step)),
        "cut for features alone": (Gradient(8), Feature(step)),
        "cut for the step alone": (step, Feature(Gradient(8))),
        "rounded": (rounded, Feature(rounded)),
    }
    ends = {}
    for way in ways:
        method = few_values.Changed(2, digits=1, gradient=Gradient(8), way=way)
        *_, (state, _) = Run(method, blobs(), mlp()).rounds(3)
        ends[way] = state.models
    for way in ("cut for features alone", "cut for the step alone", "rounded"):
        assert not torch.equal(ends["cut"], ends[way]), way


def test_products_by_both_libraries_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "LAYERS", [(8, 6)])
    monkeypatch.setattr(libraries, "ROWS", [2, 4])
    (line,) = libraries.rows_of("step", 1, lambda rows, weight: rows * weight.numel() > 100)
    *told, small, large = line.strip("| ").split(" | ")
    assert told == ["step", "8", "6"]
    assert large.startswith("**") > small.startswith("**")
    assert min(float(cell.strip("*")) for cell in (small, large)) > 0
