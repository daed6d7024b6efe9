"""The folder `deploy`: its script runs a federation, and units and an image start its parts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.flower.deployed_runs import BASE
from tests.flower.deployment import BIN, free_port, write_clients
from tests.processes import wait_until
from umbel.experiment.toml_file import write
from umbel.flower.scaffold import write_app
from umbel.folder.run_folder import RunFolder

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPT = DEPLOY / "federation.sh"
UNITS = sorted((DEPLOY / "systemd").iterdir())


def ended(*parts: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """The script, when it has ended."""
    return subprocess.run(
        [str(SCRIPT), *parts],
        env={"PATH": os.environ["PATH"], "UMBEL_VENV": str(BIN.parent), **settings},
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )


@pytest.mark.deployment
def test_the_script_runs_a_federation_on_one_machine_to_its_end(tmp_path: Path) -> None:
    write_clients(tmp_path / "data", nodes=1)
    write_app(tmp_path / "small", write(replace(BASE, name="other")))
    settings = {
        "UMBEL_HOME": str(tmp_path),
        "UMBEL_APP": str(tmp_path / "small"),
        "UMBEL_SUPERLINK": f"127.0.0.1:{free_port()}",
        "UMBEL_NODE_PORT": str(free_port()),
        "UMBEL_DATA": str(tmp_path / "data" / "site0"),
        "UMBEL_NODE_CONFIG": "classes=3",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
        "UMBEL_RUN_CONFIG": 'clients=5 patience=480 metrics="0"',
    }
    # Both nodes bring the same clients, which belong to the first of them.
    done = ended("all", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "metrics: http://127.0.0.1:" in done.stdout
    assert "accuracy, mean over clients" in done.stdout
    folder = RunFolder(tmp_path / "runs" / "other-seed0")
    assert folder.finished
    assert [client.name for client in folder.clients()] == [str(n) for n in range(5)]
    wait_until(lambda: not any(of_this_federation(tmp_path)), "a process is left")


def of_this_federation(folder: Path) -> Iterator[str]:
    """The processes whose Flower is at home in this folder."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLWR_HOME={folder}/flwr".encode() in (process / "environ").read_bytes():
                yield process.name
        except OSError:
            continue


def test_a_part_that_is_none_and_a_server_open_to_all_are_refused(tmp_path: Path) -> None:
    for part in ((), ("super",)):
        refused = ended(*part, UMBEL_HOME=str(tmp_path))
        assert refused.returncode == 2
        assert "is not install, superlink, supernode, run or all" in refused.stderr
    for address in ("0.0.0.0", "0.0.0.0:8000", "[::]:8000"):
        refused = ended("superlink", UMBEL_HOME=str(tmp_path), UMBEL_LISTEN=address)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "other machines need certificates, in UMBEL_KEYS" in refused.stderr


def test_units_and_image_start_parts_of_the_script_by_settings_of_one_file() -> None:
    script = SCRIPT.read_text()
    parts = set(re.findall(r"^(\w+)\(\) {$", script, re.MULTILINE)) - {"fail", "known"}
    assert parts == set(re.findall(r"^#   federation.sh (\w+)", script, re.MULTILINE))
    image = (DEPLOY / "Dockerfile").read_text()
    texts = [*(unit.read_text() for unit in UNITS), image]
    started = {part for text in texts for part in re.findall(r"/federation\.sh (\w+)", text)}
    started |= set(re.findall(r'^CMD \["(\w+)"\]', image, re.MULTILINE))
    assert started == parts - {"all"}
    settings = set(re.findall(r"^#?(UMBEL_\w+)=", (DEPLOY / "umbel.env").read_text(), re.MULTILINE))
    assert settings == set(re.findall(r"UMBEL_\w+", script))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        text = unit.read_text().replace("/opt/umbel/deploy", str(DEPLOY))
        (tmp_path / unit.name.replace("@", "@0")).write_text(text)
    files = map(str, sorted(tmp_path.iterdir()))
    command = ["systemd-analyze", "verify", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
