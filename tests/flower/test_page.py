"""docs/flower.md from top to bottom: real processes, encrypted connections, and who is kept out."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.flower.deployment import Deployment, free_port
from umbel.engines.privacy import Privacy
from umbel.folder.run_folder import RunFolder

pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(
        not (shutil.which("openssl") and shutil.which("ssh-keygen")),
        reason="openssl and ssh-keygen make the certificates and keys, and are not here",
    ),
]

PAGE = Path(__file__).parents[2] / "docs" / "flower.md"

ELSEWHERE = ("flwr[simulation]", "benchmarks.")
"""Blocks with these are not run here: they need a package, or data, that few machines have."""

ROUNDS = {"my-sites": 2, "my-safe-sites": 1, "my-private-sites": 1}
"""How many rounds each app runs: one or two show what ten would."""


def shorter(command: re.Match[str]) -> str:
    """The command, and what makes its run short."""
    app, rounds = command[1], ROUNDS[command[1]]
    edits = f"s/^rounds = 10/rounds = {rounds}/; s/^evaluate_every = 5/evaluate_every = {rounds}/"
    return f"{command[0]}\nsed -i.long '{edits}' {app}/experiment.toml"


@dataclass
class Reader:
    """Somebody who does what the page says, in a folder of their own."""

    deployed: Deployment
    exports: str = ""  # of the terminal where commands end
    ports: dict[str, int] = field(default_factory=dict)  # of the page, and in their place
    said: dict[str, str] = field(default_factory=dict)  # a block, and what it printed

    def follow(self) -> Iterator[str]:
        """Do one block after another; yields each when it is done."""
        text = PAGE.read_text(encoding="utf-8")
        self.ports = {"8000": self.deployed.port, "9094": free_port(), "9095": free_port()}
        for kind, block in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
            if any(word in block for word in ELSEWHERE):
                continue
            match kind:
                case "bash":
                    self.type_in(re.sub("^pip .*$", "", block, flags=re.MULTILINE))
                case "python":
                    self.run("python - <<'END'\n" + block + "END\n")
                case "toml":
                    name = block.split(maxsplit=2)[1]
                    (self.deployed.folder / name).write_text(block)
            yield block

    def type_in(self, block: str) -> None:
        """Servers go on in a terminal of their own; others are waited for."""
        for port, ours in self.ports.items():
            block = block.replace(port, str(ours))
        block = re.sub("umbel flower new (.*)", shorter, block)
        server = re.search("^flower-(superlink|supernode)", block, re.MULTILINE)
        if server is None:
            self.said[block] = self.run(self.exports + block)
            self.exports += "".join(re.findall("^export .*\n", block, re.MULTILINE))
        elif server[1] == "superlink":
            for name in list(self.deployed.running):
                self.deployed.kill(name)
            self.serve("superlink", block)
            self.deployed.wait_for(self.deployed.listens, 120)
        else:
            self.serve(f"node{len(self.deployed.running)}", block)

    def run(self, script: str) -> str:
        """What a script prints, which succeeds."""
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=self.deployed.folder,
            env=self.deployed.environment("reader"),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, script + done.stdout + done.stderr + self.deployed.logs()
        return done.stdout + done.stderr

    def serve(self, name: str, script: str) -> None:
        """Start it, and go on."""
        home = f"cd {self.deployed.folder}\n"
        self.deployed.start(name, [shutil.which("bash") or "bash", "-ec", home + script])

    def heard(self, start: str) -> str:
        """What the block said that has this in it."""
        (said,) = (said for block, said in self.said.items() if start in block)
        return said


@pytest.mark.thorough
def test_every_command_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    with Deployment(tmp_path, linked=False) as deployed:
        reader = Reader(deployed)
        for block in reader.follow():
            if "supernode register" in block:
                start_intruders(deployed)
        for intruder, code in {"stranger": "code: 2004", "keyless": "code: 2001"}.items():
            deployed.wait_for(partial(ended, deployed, intruder), 120)
            assert code in (tmp_path / f"{intruder}.log").read_text()
    assert "Connection attempt failed" in (tmp_path / "plain.log").read_text()
    for intruder in "stranger", "keyless", "plain":
        said = (tmp_path / f"{intruder}.log").read_text()
        assert "SuperNode ID" not in said
        assert "Receiving" not in said
    for name in "my-sites", "my-safe-sites", "my-private-sites":
        run = RunFolder(tmp_path / "runs" / f"{name}-seed0")
        clients = [client.name for client in run.clients()]
        assert clients == ["client00", "client01", "client10", "client11"]
        assert not any(record.missing or record.refused for record in run.records())
        assert_a_line_a_round(reader.heard(f"flwr run {name} here"), run.path, ROUNDS[name])
    assert "finished:completed" in reader.heard("flwr ls")
    assert "client00" in reader.heard("umbel show")
    simulated = reader.heard("umbel run private.toml")
    assert "privacy: " not in simulated
    assert float(re.findall(r"loss (\S+)", simulated)[-1]) < 0.055  # 0.066 without clusters
    assert "little can be learned" in reader.heard("flwr run my-private-sites")
    spent = f"{Privacy(clip=0.1, noise_multiplier=8.0).epsilon(1):.4g}"
    assert reader.heard("flower spent").count(spent) == 2


def assert_a_line_a_round(stream: str, run: Path, rounds: int) -> None:
    """Flower's lines are before and after umbel's, and nobody else's are there."""
    lines = [line for line in stream.splitlines() if not line.startswith("privacy: ")]
    _, met, *done, end = lines[lines.index("waiting for 4 clients, 120 s at most") :][: rounds + 3]
    assert met == f"{run}: 4 clients, of whom 4 are at 2 nodes now"
    starts = [line.split("  ")[0] for line in done]
    assert starts == [f"round {n + 1}/{rounds}" for n in range(rounds)]
    assert all(line.startswith(f"{line.split('  ')[0]}  clusters ") for line in done[:-1])
    assert done[-1].startswith(f"{starts[-1]}  accuracy 0.")
    assert end == f"{run}: finished; `umbel show {run}` shows it"
    assert len(lines) < 25, stream


def start_intruders(deployed: Deployment) -> None:
    """Nodes with a key that nobody registered, without one, and without encryption."""
    key = deployed.folder / "keys" / "unknown"
    make = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", "", "-f", str(key)]
    subprocess.run(make, check=True)
    deployed.tls = deployed.folder / "keys"
    deployed.start_node("stranger", key, data=str(deployed.folder / "site0"))
    deployed.start_node("keyless", data=str(deployed.folder / "site0"))
    deployed.tls = None
    deployed.start_node("plain", data=str(deployed.folder / "site0"))


def ended(deployed: Deployment, name: str) -> bool:
    return not deployed.alive(name)
