"""What the page of a comparison says of making its runs again makes the same runs."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from tests.report.pages import Page
from tests.shell import Shell
from umbel.algorithms import FedAvg
from umbel.client.work import LocalTraining
from umbel.folder.how_to_continue import NODES
from umbel.report.pages.writing import write_files
from umbel.result.run import Run, read
from umbel.result.tables import run_folders
from umbel.testing import blobs, mlp

pytest.importorskip("vl_convert", reason="the extra umbel[report] is not installed")

TEXTS = re.compile(r"<details><summary>([^<]*: seeds? [^<]*)</summary><pre>(.*?)</pre>", re.DOTALL)


def page_of(folder: Path) -> Page:
    return Page(write_files(folder)[0].read_text(encoding="utf-8"))


def texts(page: Page) -> dict[str, str]:
    """The settings on the page, by what is above them."""
    return {title: html.unescape(text) for title, text in TEXTS.findall(page.text)}


def check_texts_make_the_runs(folder: Path, page: Page) -> None:
    """Every run is that of a text and one of the seeds above it, and of no other text."""
    made = []
    for title, text in texts(page).items():
        file = folder.parent / "copied.toml"
        file.write_text(text, encoding="utf-8")
        seeds = title.rpartition(": ")[2].split(" ", 1)[1].split(", ")
        made += [read(file, [f"seed={seed}"]) for seed in seeds]
    there = [run.experiment for run in run_folders(folder)]
    assert len(made) == len(there)
    assert all(experiment in made for experiment in there)


@pytest.mark.thorough
def test_with_controls_each_seed_has_its_own_sizes_and_the_command_makes_them(
    umbel: Shell,
) -> None:
    umbel.clustering()
    umbel("compare", "both", "--seeds", "2", "--set", "rounds=3", "--control")
    folder = umbel.folder / "runs" / "both"
    page = page_of(folder)
    assert "umbel compare both --seeds 2 --control" in page.said
    assert {"ifca: seeds 0, 1", "fedavg: seeds 0, 1"} < set(texts(page))
    assert "ifca (random clusters): seed 1" in texts(page)
    check_texts_make_the_runs(folder, page)


def test_runs_made_in_python_and_over_flower_are_no_files_to_run(tmp_path: Path) -> None:
    for name in ("mine", "sites"):
        run = Run(FedAvg(LocalTraining(epochs=1)), blobs(), mlp())
        run.save(tmp_path / "runs" / f"{name}-seed0", rounds=1)
    (tmp_path / "runs" / "sites-seed0" / NODES).write_text("{}")
    said = page_of(tmp_path / "runs").said
    assert "umbel run" not in said
    assert "umbel compare" not in said
    assert "run.save of the same umbel.Run, with these settings, makes them again: mine: s" in said
    assert "the same flwr run, with these settings and sites, makes them again: sites: s" in said
