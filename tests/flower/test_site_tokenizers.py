"""Sites whose texts become token ids must use the same tokenizer, wherever each has it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import umbel
from tests.flower.small import site
from tests.networks.tiny import encoder, permute
from umbel.algorithms import IFCA
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.flower import Settings, serve
from umbel.flower.client_owners import Owners
from umbel.folder.run_folder import RunFolder
from umbel.networks import TextClassifier
from umbel.result.run import Experiment

pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")


def table(folder: Path, name: str, tokenizer: Path) -> Federation:
    """Two clients of a site."""
    rows = [f"{name} {n % 2},the {word},{n % 2}" for n, word in enumerate(["maps", "fonts"] * 6)]
    file = folder / f"{name}.csv"
    file.write_text("\n".join(["who,text,target", *rows]) + "\n")
    return umbel.scenario("table", path=str(file), client="who", tokenizer=str(tokenizer))


def served(folder: Path, tiny: Path, *tables: Federation, clients: int) -> RunFolder:
    method = IFCA(num_clusters=2, local=LocalTraining(epochs=1))
    model = TextClassifier(encoder=str(tiny), adapters=0)
    experiment = Experiment(ROTATED_DIGITS, model, method, participation=1.0, rounds=1)
    settings = Settings(clients, patience=5.0, runs_dir=str(folder / "runs"))
    return serve(site(folder, *tables, of=experiment), experiment, settings)


@pytest.mark.thorough
def test_sites_may_keep_the_tokenizer_in_folders_of_their_own(tmp_path: Path) -> None:
    tiny = encoder(tmp_path / "tiny")
    copy = shutil.copytree(tiny, tmp_path / "copy")
    tables = table(tmp_path, "north", tiny), table(tmp_path, "south", copy)
    permute(tiny)
    west = table(tmp_path, "west", tiny)
    run = served(tmp_path, tiny, *tables, west, clients=4)
    assert [client.name[:5] for client in run.clients()] == ["north"] * 2 + ["south"] * 2
    (why,) = Owners.read(run.file("nodes.json"), 60.0).refused.values()
    assert "the classes or the tokenizer are not those of other sites' tables" in why
    result = umbel.load(run.path)
    assert len(result.assign(table(tmp_path, "east", copy)).clusters) == 2
    with pytest.raises(umbel.UsageError, match="the classes or the tokenizer are not those"):
        result.assign(west)
