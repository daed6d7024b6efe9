"""A file of another cluster or run is refused in the place of the one that was written there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import umbel
from tests.folder.saved import LOCAL, make_run
from umbel import UsageError
from umbel.folder.identity import identity
from umbel.newcomers import descriptions

OTHER = "is of another run than checkpoint.safetensors"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of the same shape, which differ in the seed."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        run = make_run(algorithm=umbel.PFedMe(local=replace(LOCAL, lr=0.05)), seed=seed)
        result = run.save(folder / f"run{seed}", 2)
        found = descriptions.described(run, run.net, seed)
        descriptions.save(result.folder.path, found)
    return folder / "run0", folder / "run1"


@pytest.fixture
def pair(runs: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Copies of both, to be spoilt."""
    one, other = (Path(shutil.copytree(run, tmp_path / run.name)) for run in runs)
    return one, other


USES: dict[str, tuple[list[str], Callable[[Path], Any]]] = {
    "model": (["models/cluster-0.safetensors"], lambda run: umbel.load(run).model(0)),
    "personal models": (["models/clients.safetensors"], lambda run: umbel.load(run).model_for(0)),
    "descriptions": (["descriptions.safetensors"], descriptions.load),
    "clusters": (["clusters.csv", "clusters.seal"], lambda run: umbel.load(run).clients),
    "facts": (["clients.csv", "clients.seal"], lambda run: umbel.load(run).clients),
    "checkpoint": (["checkpoint.safetensors"], lambda run: umbel.load(run).state),
}


@pytest.mark.parametrize(("files", "use"), USES.values(), ids=USES)
def test_a_file_of_another_run_of_the_same_shape_is_refused(
    files: list[str], use: Callable[[Path], Any], pair: tuple[Path, Path]
) -> None:
    here, other = pair
    use(here)
    for file in files:
        shutil.copyfile(other / file, here / file)
    with pytest.raises(UsageError, match=OTHER):
        use(here)


def test_the_model_of_another_cluster_is_refused(tmp_path: Path) -> None:
    local = make_run(algorithm=umbel.LocalOnly(LOCAL))
    result = local.save(tmp_path / "run", 1)
    models = result.folder.file("models")
    shutil.copyfile(models / "cluster-0.safetensors", models / "cluster-3.safetensors")
    again = umbel.load(tmp_path / "run")
    again.model(0)
    for use in (again.model, again.model_for, lambda n: again.export("safetensors", cluster=n)):
        with pytest.raises(UsageError, match="holds the model of cluster 0"):
            use(3)


def test_a_model_of_fewer_rounds_of_the_same_run_is_refused(tmp_path: Path) -> None:
    run = make_run()
    first = run.save(tmp_path / "run", 1)
    model = first.folder.file("models") / "cluster-0.safetensors"
    shutil.copyfile(model, tmp_path / "before")
    umbel.resume(tmp_path / "run", run, rounds=2).model(0)
    shutil.copyfile(tmp_path / "before", model)
    with pytest.raises(UsageError, match=OTHER):
        umbel.load(tmp_path / "run", run.net).model(0)


def test_a_folder_may_be_moved_and_renamed(pair: tuple[Path, Path], tmp_path: Path) -> None:
    moved = pair[0].rename(tmp_path / "elsewhere")
    for _, use in USES.values():
        use(moved)


@pytest.mark.parametrize("to", ["safetensors", "torch"])
def test_an_exported_file_says_whose_model_it_is(to: Any, pair: tuple[Path, Path]) -> None:
    result = umbel.load(pair[0])
    file = result.export(to, client=1).file
    said: dict[str, str] = {}
    if to == "safetensors":
        with safe_open(file, framework="pt") as opened:
            said = json.loads(opened.metadata()["umbel"])
    else:
        extra = {"umbel.json": ""}
        torch.export.load(file, extra_files=extra)
        said = json.loads(extra["umbel.json"])
    assert said == {"run": identity(pair[0]), "model": "client-1"}
