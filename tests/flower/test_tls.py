"""Encrypted connections and nodes that prove who they are: nobody else gets anything."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.flower.deployment import Deployment, free_port, write_clients
from tests.flower.test_deployment import BASE, LOCAL
from umbel.algorithms import FedAvg
from umbel.config import write
from umbel.folder import RunFolder

pytestmark = [
    pytest.mark.xdist_group("deployment"),
    pytest.mark.skipif(
        not (shutil.which("openssl") and shutil.which("ssh-keygen")),
        reason="openssl and ssh-keygen make the certificates and keys, and are not here",
    ),
]

CERTIFICATES = """
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=umbel-ca -keyout ca.key -out ca.crt
openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
  -extfile names.txt -out server.pem
"""


def make_certificates(folder: Path) -> Path:
    folder.mkdir()
    (folder / "names.txt").write_text("subjectAltName = DNS:localhost, IP:127.0.0.1\n")
    subprocess.run(["bash", "-ec", CERTIFICATES], cwd=folder, check=True, capture_output=True)
    return folder


def make_key(file: Path) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", "", "-f", str(file)]
    subprocess.run(command, check=True)
    return file


def test_only_nodes_with_a_known_key_over_tls_take_part(tmp_path: Path) -> None:
    sites = write_clients(tmp_path / "data", nodes=2, count=4)
    certificates = make_certificates(tmp_path / "certificates")
    keys = [make_key(tmp_path / f"key{n}") for n in range(3)]
    experiment = replace(BASE, name="app", algorithm=FedAvg(LOCAL))
    with Deployment(tmp_path, tls=certificates) as deployed:
        for key in keys[:2]:
            done = deployed.flwr("supernode", "register", f"{key}.pub", "here")
            assert done.returncode == 0, done.stdout + done.stderr
        for n, site in enumerate(sites):
            memory = str(tmp_path / f"memory{n}")
            deployed.start_node(f"node{n}", keys[n], data=str(site), classes=3, memory_dir=memory)
        deployed.start_node("stranger", keys[2], data=str(sites[0]), classes=3)
        deployed.start_node("keyless", data=str(sites[0]), classes=3)
        plain = ["flower-supernode", "--insecure", "--superlink", deployed.address]
        deployed.start("plain", [*plain, "--host", "127.0.0.1", "--port", str(free_port())])
        app = deployed.app("app", write(experiment))
        deployed.run(app, clients=4)
        run = RunFolder(app / "runs" / "app-seed0")
        deployed.wait_for(lambda: run.finished)
        for refused, code in {"stranger": "code: 2004", "keyless": "code: 2001"}.items():
            deployed.wait_for(partial(ended, deployed, refused), 60)
            assert code in (tmp_path / f"{refused}.log").read_text()
        said = (tmp_path / "plain.log").read_text()
        assert "Connection attempt failed" in said
    for refused in "stranger", "keyless", "plain":
        said = (tmp_path / f"{refused}.log").read_text()
        assert "SuperNode ID" not in said
        assert "Receiving" not in said
    assert [row["client"] for row in run.clients()] == ["0", "1", "2", "3"]
    assert not any(record.missing or record.refused for record in run.records())


def ended(deployed: Deployment, name: str) -> bool:
    return not deployed.alive(name)
