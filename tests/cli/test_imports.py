"""Looking at a run imports nothing of it; running says what it imports, and can be kept from it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch

from tests.shell import SMALL, Shell
from umbel import UsageError, load
from umbel.folder.run_folder import RunFolder

MINE = """
from dataclasses import dataclass
from pathlib import Path

from umbel import FedAvg, SGD

Path("was-here").touch()


@dataclass(frozen=True)
class Mine(FedAvg):
    \"\"\"Averages, as FedAvg does.\"\"\"

    strength: float = 1.0
"""

RUN = "runs/mine-seed0"

PARTS = {
    "scenario_of_tests": """
from dataclasses import dataclass
import numpy as np
import umbel

@dataclass(frozen=True)
class Lines(umbel.Scenario):
    \"\"\"Four clients with two numbers an example.\"\"\"

    def build(self, seed, sources):
        rng = np.random.default_rng(seed)
        x = [rng.normal(size=(12, 2)).astype(np.float32) for _ in range(4)]
        return umbel.Federation.from_arrays([(each, each[:, 0]) for each in x], seed=seed)
""",
    "networks_of_tests": """
from dataclasses import dataclass
import torch
from umbel.networks import Model

@dataclass(frozen=True)
class Narrow(Model):
    \"\"\"One layer.\"\"\"

    def build(self, input_shape, num_outputs):
        return torch.nn.Linear(*input_shape, num_outputs)
""",
    "method_of_tests": """
from dataclasses import dataclass
import umbel

@dataclass(frozen=True)
class PlainIFCA(umbel.IFCA):
    \"\"\"IFCA as it is.\"\"\"
""",
}
"""Modules of a scenario, a network and a method of somebody's own."""

OWN_PARTS = """
rounds = 1
scenario.name = "scenario_of_tests:Lines"
model.name = "networks_of_tests:Narrow"
algorithm.name = "method_of_tests:PlainIFCA"
algorithm.num_clusters = 2
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run of a method of somebody's own is to be."""
    return tmp_path_factory.mktemp("made")


@pytest.fixture
def theirs(umbel: Shell, made: Path) -> Shell:
    """A folder with that run, and with its method, which leaves a trace where it is imported."""
    text = SMALL.format(name="mine_of_tests:Mine").replace("rounds = 4", "rounds = 2")
    (umbel.folder / "mine.toml").write_text(text)
    (umbel.folder / "mine_of_tests.py").write_text(MINE)
    if not (made / "runs").is_dir():
        _, errors = umbel("run", "mine.toml")
        assert errors.splitlines() == ["imports 'mine_of_tests:Mine'"]
        shutil.copytree("runs", made / "runs")
        Path("was-here").unlink()
    shutil.copytree(made / "runs", "runs", dirs_exist_ok=True)
    umbel.monkeypatch.delitem(__import__("sys").modules, "mine_of_tests", raising=False)
    return umbel


def test_looking_imports_nothing(theirs: Shell) -> None:
    looks = [
        *(["show", RUN], ["show", RUN, "--config"], ["show", RUN, "--json"], ["show", "runs"]),
        *(["show", "runs", "--csv", "--rows", "rounds"], ["show", "runs", "--at", "1"]),
        *(["report", RUN], ["report", "runs"], ["export", RUN, "--to", "tensorboard"]),
        ["export", RUN, "--to", "torch", "--client", "0"],
    ]
    for words in looks:
        printed, errors = theirs(*words)
        assert "import" not in errors
        if "--json" in words:
            assert '"algorithm": "mine_of_tests:Mine"' in printed
    (theirs.folder / RUN / "clusters.csv").unlink()
    theirs("show", RUN)
    theirs("report", RUN)
    assert not Path("was-here").exists()


def test_what_is_to_be_run_is_said_before_it_is_imported(theirs: Shell) -> None:
    needing = [
        *(["run", "mine.toml", "--runs-dir", "other"], ["compare", ".", "--seeds", "1"]),
        *(["resume", RUN, "--rounds", "3"], ["finish", RUN]),
        *(["estimate-clusters", RUN], ["run", "both/flacc.toml", "--set", "algorithm.name=a:B"]),
    ]
    for words in needing:
        message = theirs.refused(*words, "--no-import")
        assert message.startswith("umbel: --no-import: '")
        assert message.endswith("' would have to be imported")
    assert not Path("was-here").exists()
    assert not Path("other").exists()
    _, errors = theirs("resume", RUN, "--rounds", "3")
    assert errors.splitlines()[0] == "imports 'mine_of_tests:Mine'"
    assert Path("was-here").exists()
    assert len(RunFolder.open(RUN).records()) == 3
    theirs("run", "both/flacc.toml", "--set", "rounds=1", "--no-import")


def test_a_network_that_only_python_has_is_not_imported_either(theirs: Shell) -> None:
    folder = RunFolder.open(RUN)
    text = folder.toml.replace('"mine_of_tests:Mine"', '"fedavg"').replace("strength = 1.0\n", "")
    start, end = text.index("[model]"), text.index("[algorithm]")
    own = 'name = "umbel.runs.own:OwnModule"\nkind = "Linear"\nvalues = 3\nobjective = ""\n'
    own += 'structure = ""\nsource = "mine_of_tests:build"\n'
    folder.file("experiment.toml").write_text(f"{text[:start]}[model]\n{own}\n{text[end:]}")
    folder.file("checkpoint.safetensors").unlink()  # it knows that this is another experiment
    theirs("show", RUN)
    theirs("report", RUN)
    assert "'mine_of_tests:build'" in theirs.refused("resume", RUN, "--no-import")
    assert not Path("was-here").exists()


@pytest.fixture
def elsewhere(umbel: Shell) -> Shell:
    """A folder with a run of own parts, of which only the network's module is there, too."""
    for name, text in PARTS.items():
        Path(f"{name}.py").write_text(text)
    Path("own.toml").write_text(OWN_PARTS)
    umbel("run", "own.toml")
    for name in PARTS:
        umbel.monkeypatch.delitem(sys.modules, name)
        if name != "networks_of_tests":
            Path(f"{name}.py").unlink()
    return umbel


def test_models_need_only_the_module_of_their_network(elsewhere: Shell) -> None:
    for words in (["--cluster", "0"], ["--client", "0"]):
        export = ["export", "runs/own-seed0", "--to", "torch", *words]
        said = "umbel: --no-import: 'networks_of_tests:Narrow' would have to be imported"
        assert elsewhere.refused(*export, "--no-import") == said
        printed, errors = elsewhere(*export)
        assert "its outputs differ from the model's by 0" in printed
        assert errors.splitlines() == ["imports 'networks_of_tests:Narrow'"]
    result = load("runs/own-seed0")
    assert isinstance(result.model(0), torch.nn.Linear)
    with pytest.raises(UsageError, match=r"experiment\.toml: algorithm\.name: 'method_of_tests:"):
        _ = result.state
    Path("networks_of_tests.py").unlink()
    elsewhere.monkeypatch.delitem(sys.modules, "networks_of_tests")
    with pytest.raises(UsageError, match=r"experiment\.toml: model\.name: 'networks_of_tests:"):
        load("runs/own-seed0").model(0)


def test_estimates_need_network_and_method_but_not_the_scenario(elsewhere: Shell) -> None:
    said = elsewhere.refused("estimate-clusters", "runs/own-seed0", "--no-import")
    assert "'networks_of_tests:Narrow', 'method_of_tests:PlainIFCA' would" in said
    Path("method_of_tests.py").write_text(PARTS["method_of_tests"])
    message = elsewhere.refused("estimate-clusters", "runs/own-seed0")
    assert "PlainIFCA' is not a method that keeps such vectors" in message
