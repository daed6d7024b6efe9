"""A real SuperLink and real SuperNodes as processes on this machine, on the loopback only."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.frozen import PROCESS
from umbel.flower.scaffold import write_app

BIN = Path(sys.executable).parent


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


@dataclass
class Deployment:
    """Processes of one federation, in a folder of its own; all end with the `with` block."""

    folder: Path
    tls: Path | None = None  # certificates, if connections are secured
    port: int = field(default_factory=free_port)
    linked: bool = True  # whether a SuperLink is there from the beginning
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Deployment:
        if self.linked:
            self.start_link()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.running):
            self.kill(name)

    def start_link(self) -> None:
        """The SuperLink, with its state in a file."""
        secured = ["--insecure"]
        if self.tls is not None:
            secured = ["--ssl-ca-certfile", f"{self.tls}/ca.crt"]
            secured += ["--ssl-certfile", f"{self.tls}/server.pem"]
            secured += ["--ssl-keyfile", f"{self.tls}/server.key", "--enable-supernode-auth"]
        command = ["flower-superlink", *secured, "--database", f"{self.folder}/link.db"]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        self.start("link", [*command, "--disable-runtime-dependency-installation"])
        config = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{self.address}"\n'
        secure = (
            "insecure = true" if self.tls is None else f'root-certificates = "{self.tls}/ca.crt"'
        )
        home = self.folder / "cli"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(config + secure + "\n")
        self.wait_for(self.listens, 120)

    def start_node(self, name: str, key: Path | None = None, **config: str | int) -> None:
        """A SuperNode with these settings; it starts again where the SuperLink refuses it."""
        settings = " ".join(f"{k.replace('_', '-')}={json.dumps(v)}" for k, v in config.items())
        secured = (
            ["--insecure"] if self.tls is None else ["--root-certificates", f"{self.tls}/ca.crt"]
        )
        if key is not None:
            secured += ["--auth-supernode-private-key", str(key)]
        command = ["flower-supernode", *secured, "--superlink", self.address]
        command += ["--node-config", settings, "--host", "127.0.0.1", "--port", str(free_port())]
        self.start(name, command)

    def start_site(self, number: int) -> None:
        """The SuperNode of a folder that `write_clients` made."""
        site, memory = f"{self.folder}/data/site{number}", f"{self.folder}/memory{number}"
        self.start_node(f"node{number}", data=site, classes=3, memory_dir=memory)

    def app(self, name: str, experiment: str) -> Path:
        """A new app that runs this experiment."""
        folder = self.folder / name
        write_app(folder, experiment)
        return folder

    def run(self, app: Path, **config: str | int) -> None:
        """Start it, and go on."""
        settings = " ".join(f"{k.replace('_', '-')}={json.dumps(v)}" for k, v in config.items())
        done = self.flwr("run", str(app), "here", "-c", settings)
        assert done.returncode == 0, done.stdout + done.stderr

    def flwr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of Flower's to its end."""
        command = [str(BIN / "flwr"), *arguments]
        env = self.environment("cli")
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=240, check=False
        )

    def start(self, name: str, command: Sequence[str]) -> None:
        """A process in a group of its own, under this name."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self.environment(name),
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """At once, with all its children."""
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def wait_for(self, holds: Callable[[], bool], seconds: float = 480) -> None:
        """Until it holds. Fails with the logs where it does not."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.1)

    def alive(self, name: str) -> bool:
        """Whether this process has not ended by itself."""
        return self.running[name].poll() is None

    def logs(self) -> str:
        """The ends of what all processes said."""
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(f"== {file.name}\n{file.read_text()[-3000:]}" for file in files)

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"127.0.0.1:{self.port}"

    def environment(self, name: str) -> Mapping[str, str]:
        """Every process has a home of its own, and one thread."""
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        return kept | {
            "PATH": f"{BIN}{os.pathsep}{kept.get('PATH', '')}",
            "FLWR_HOME": str(self.folder / name),
            PROCESS: name,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
            "OMP_NUM_THREADS": "1",
        }

    def listens(self) -> bool:
        """Whether the SuperLink does."""
        with socket.socket() as opened:
            return opened.connect_ex(("127.0.0.1", self.port)) == 0


def write_clients(folder: Path, count: int = 5, nodes: int = 2) -> list[Path]:
    """Clients in two planted groups: a folder of .npz files a node, and one with all of them.

    A node has clients that follow each other, and so of both groups.
    """
    rng = np.random.default_rng(0)
    centres = rng.normal(scale=2, size=(3, 6))
    folders = [folder / f"site{n}" for n in range(nodes)]
    for each in (*folders, folder / "all"):
        each.mkdir(parents=True)
    for client in range(count):
        y = rng.integers(0, 3, 30)
        x = (centres[y] + rng.normal(size=(30, 6))).astype(np.float32)
        y = (y + client % 2) % 3
        arrays = {"x": x[:22], "y": y[:22], "x_test": x[22:], "y_test": y[22:]}
        for each in (folders[client * nodes // count], folder / "all"):
            np.savez(each / f"{client}.npz", **arrays)  # type: ignore[arg-type]
    return folders
