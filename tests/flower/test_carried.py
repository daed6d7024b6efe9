"""A new app has the code that its experiment names, and says what else its nodes need."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk

from tests.shell import Shell

EXPERIMENT = """
metrics = ["my_measures:mine"]
[scenario]
name = "my_clients:Lines"
path = "lines.csv"
[model]
name = "mlp"
hidden = [4]
[algorithm]
name = "my_methods.averages:Mine"
"""

SCENARIO = """
from dataclasses import dataclass
import numpy as np
import my_numbers
import umbel

@dataclass(frozen=True)
class Lines(umbel.Scenario):
    path: str = "lines.csv"

    def build(self, seed, sources):
        rng = np.random.default_rng(my_numbers.ADDED + seed)
        x = [rng.normal(size=(12, 2)).astype(np.float32) for _ in range(4)]
        return umbel.Federation.from_arrays([(each, each[:, 0]) for each in x], seed=seed)
"""

METHOD = """
from dataclasses import dataclass
from umbel import FedAvg

@dataclass(frozen=True)
class Mine(FedAvg):
    pass
"""

FILES = {
    "my_clients.py": SCENARIO,
    "my_numbers.py": "ADDED = 1\n",
    "my_methods/__init__.py": "",
    "my_methods/averages.py": METHOD,
    "my_measures.py": "def mine(outputs, targets):\n    return 0.0\n",
    "not_needed.py": "",
}


@pytest.fixture
def project(umbel: Shell) -> Path:
    """A folder with an experiment and its code; umbel is called in another one."""
    folder, elsewhere = umbel.folder / "project", umbel.folder / "elsewhere"
    for name, text in {**FILES, "e.toml": EXPERIMENT}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    elsewhere.mkdir()
    umbel.monkeypatch.chdir(elsewhere)
    return folder


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # in Flower
def test_an_app_carries_the_code_of_its_experiment(umbel: Shell, project: Path) -> None:
    out, _ = umbel("flower", "new", "my-sites", "--experiment", str(project / "e.toml"))
    assert f"scenario.path: {project / 'lines.csv'} is not sent: every node reads it" in out
    place = umbel.folder / "installed"
    with zipfile.ZipFile(BytesIO(build_fab_from_disk(Path("my-sites")))) as sent:
        sent.extractall(place)
    carried = {name for name in FILES if (place / name).is_file()}
    assert carried == {*FILES} - {"not_needed.py"}
    # As a node does: nothing but what was sent is there.
    program = (
        "import umbel; e = umbel.read('experiment.toml'); print(e.open(umbel.Sources.default()))"
    )
    subprocess.run([sys.executable, "-c", program], cwd=place, check=True)


def test_what_cannot_be_carried_is_said(umbel: Shell, project: Path) -> None:
    text = EXPERIMENT.replace("my_methods.averages", "nowhere_at_all").replace(
        "my_measures", "numpy"
    )
    (project / "e.toml").write_text(text)
    out, _ = umbel("flower", "new", "my-sites", "--experiment", str(project / "e.toml"))
    assert "numpy is installed here: install it at the server and every node, too" in out
    assert "nowhere_at_all is not found: put it into my-sites, beside experiment.toml" in out


def test_an_app_is_not_called_as_a_module_that_it_carries(umbel: Shell, project: Path) -> None:
    arguments = ("flower", "new", "my-clients", "--experiment", str(project / "e.toml"))
    _, err = umbel(*arguments, status=2)
    assert "'my_clients' is not a name for the app" in err
    assert not Path("my-clients").exists()
