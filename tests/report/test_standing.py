"""Who is said to be best, and who gains and loses: from clients' results written by hand."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.pages import Page, beside_baselines, made
from umbel.experiment.library import find_experiment
from umbel.folder.run_folder import RunFolder
from umbel.report.best_method import leads, verdict
from umbel.report.gains_per_client import fates
from umbel.report.pages.writing import write_files
from umbel.result.run import Result, read
from umbel.result.statistics.contenders import ComparedMethod, contenders, gains
from umbel.result.statistics.data import Data
from umbel.result.statistics.measures import ACCURACY, LOSS, Measure
from umbel.result.statistics.pairs import standing

SCENARIO = read(find_experiment("fedavg-digits")).scenario
OTHER = read(find_experiment("fedavg-digits"), ["scenario.clients=8"]).scenario

BASE = (0.5, 0.6, 0.7, 0.8, 0.5, 0.6, 0.7, 0.8)
ABOVE = tuple(score + gain for score, gain in zip(BASE, (0.1, 0.11, 0.09, 0.1) * 2, strict=True))
MIXED = tuple(score + gain for score, gain in zip(BASE, (0.2, -0.2, 0.1, 0) * 2, strict=True))


def contender(
    name: str, scores: Sequence[float], seeds: int = 3, baseline: str = "", moved: bool = False
) -> ComparedMethod:
    """A method that does alike under each seed, but for a little."""
    by_seed = {
        seed: {f"site {n}": score + 0.001 * seed * n for n, score in enumerate(scores)}
        for seed in range(seeds)
    }
    quality = sum(scores) / len(scores)
    data = dict.fromkeys(range(seeds), Data(OTHER if moved else SCENARIO))
    return ComparedMethod(name=name, baseline=baseline, quality=quality, data=data, scores=by_seed)


def said(*methods: ComparedMethod, measure: Measure = ACCURACY) -> str:
    return verdict(standing(methods, measure), measure)


def test_a_method_that_is_ahead_by_more_than_chance_is_named_with_the_interval() -> None:
    text = said(contender("ifca", BASE), contender("flacc", ABOVE))
    assert text.startswith("flacc has the highest mean accuracy, 0.75, and is ahead of every other")
    assert re.search(r"of ifca, the next, by \+0\.1 \(95% interval \+0\.09\d+ to \+0\.1\d+\)", text)
    assert "paired over 24 results of the same clients under 3 seeds." in text


def test_where_zero_is_in_the_interval_no_method_is_named_as_best() -> None:
    text = said(contender("local", BASE), contender("ifca", MIXED))
    assert text.startswith("No method is best for sure: ifca has the highest mean accuracy")
    assert re.search(r"its lead over local could be chance: \+0\.025 \(95% interval -0\.", text)


def test_a_method_that_chance_may_have_put_first_is_still_ahead_of_others() -> None:
    worse = tuple(score - 0.3 for score in BASE)
    text = said(contender("a", worse), contender("local", BASE), contender("ifca", MIXED))
    assert "its lead over local could be chance" in text
    assert "It is ahead of a by more than chance." in text
    assert text.endswith("Corrected for all 3 pairs of methods (Holm), it is ahead of a.")


def test_with_one_seed_the_page_says_that_only_clients_vary() -> None:
    text = said(contender("ifca", BASE, 1), contender("flacc", ABOVE, 1))
    assert "of the same clients under one seed" in text
    assert "With one seed, only clients vary here" in text
    assert "only clients vary" not in said(contender("ifca", BASE), contender("flacc", ABOVE))


def test_other_data_and_few_clients_and_equal_results_give_no_winner() -> None:
    moved = said(contender("ifca", BASE, moved=True), contender("flacc", ABOVE))
    assert "it has no finished run on the same data under the same seed as ifca" in moved
    few = said(contender("ifca", BASE[:2], 2), contender("flacc", ABOVE[:2], 2))
    assert "rests on 4 results" in few
    assert "fewer than 6 tell nothing of chance" in few
    assert "every client fares alike with ifca" in said(
        contender("ifca", BASE), contender("flacc", BASE)
    )


def test_of_regressions_the_lower_loss_is_the_better_one() -> None:
    text = said(contender("ifca", ABOVE), contender("flacc", BASE), measure=LOSS)
    assert text.startswith("flacc has the lowest mean loss, 0.65, and is ahead")
    (first, *_) = gains(contender("flacc", BASE), contender("ifca", ABOVE), LOSS)
    assert first.value == pytest.approx(0.1)


def test_the_figure_shows_what_chance_allows_as_hollow() -> None:
    methods = [contender("a", BASE), contender("b", MIXED)]
    (panel,) = leads(standing(methods, ACCURACY), ACCURACY)
    middles = [strip.middle for strip in panel.figure.strips]  # type: ignore[union-attr]
    assert [middle is not None and middle.sure for middle in middles] == [False]
    assert panel.figure.title == "Lead of b"


def test_clients_that_gain_and_lose_are_counted_and_named() -> None:
    methods = [
        contender("alone", BASE, 2, "local-only"),
        contender("ifca", MIXED, 2),
        contender("flacc", ABOVE, 2),
    ]
    (found,) = fates(methods, ACCURACY)
    assert [method.name for method, _ in found.rows] == ["flacc", "ifca"]
    _, (flacc, ifca) = found.methods
    assert [flacc[0], *flacc[3:]] == ["flacc", "16", "0", "0", "0%", "-", "-"]
    assert [ifca[0], *ifca[3:8]] == ["ifca", "8", "4", "4", "25%", "-0.2000"]
    heads, clients = found.clients
    assert heads == ["client", "flacc", "ifca"]
    assert "site 1" in [client for client, *_ in clients]
    dots = found.panel.figure.strips[1].dots  # type: ignore[union-attr]
    assert sorted({dot.group for dot in dots}) == ["gains", "loses", "same"]
    assert any("client site 1, seed 0" in dot.text for dot in dots)


def test_a_clustered_method_with_one_cluster_is_federated_averaging(tmp_path: Path) -> None:
    settings = ("rounds=2", "scenario.examples=40")
    for name in ("fedavg-linear", "cfl-gp-linear"):
        shutil.copytree(made(name, *settings), tmp_path / name)
    runs = [Result(RunFolder(tmp_path / name)) for name in ("fedavg-linear", "cfl-gp-linear")]
    found = contenders(runs, LOSS)
    assert {each.name: each.baseline for each in found} == {"fedavg": "FedAvg", "cfl-gp": ""}
    (fate,) = fates(found, LOSS)
    assert fate.panel.figure.title == "Each client against fedavg"


def test_a_page_says_of_each_client_what_it_gains_beside_both_baselines(tmp_path: Path) -> None:
    path = beside_baselines()
    (file,) = write_files(path, tmp_path / "report.html")
    page = Page(file.read_text(encoding="utf-8"))
    titles = [title for title in page.titles if title.startswith("Each client")]
    assert titles == ["Each client against local-only", "Each client against fedavg"]
    assert "every client against local-only" in page.said
    assert len(page.text.encode()) < 2e6
    for client in RunFolder(path / "ifca-digits-seed0").clients():
        assert f"client {client.name}, seed 0" in str(page.figures)
    runs = [Result(RunFolder(each.parent)) for each in sorted(path.glob("*/experiment.toml"))]
    names = {found.name: found.baseline for found in contenders(runs, ACCURACY)}
    assert names == {"fedavg": "FedAvg", "ifca": "", "local-only": "local-only"}


def test_a_leader_that_is_behind_where_both_have_seeds_is_said_to_be() -> None:
    ahead, behind = contender("ifca", ABOVE, seeds=2), contender("flacc", BASE, seeds=3)
    lucky = replace(behind, quality=0.9)  # by the seeds that it alone has
    text = said(ahead, lucky)
    assert "but ifca is ahead by +0.1 (95% interval +0.09" in text
    assert "on the 16 results of the same clients under 2 seeds that both have." in text
    assert "could be chance" not in text
