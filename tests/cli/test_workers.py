"""What the command line says of processes that clients are spread over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torch import Tensor, nn

from tests.shell import SMALL, Shell
from umbel.data.sources import Sources
from umbel.engines.processes import workers
from umbel.engines.processes.crew import Crew
from umbel.engines.processes.workers import can_fork
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.networks import MLP

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system does not fork processes")

RUN = "runs/spread-seed0"
WHOLE = Path("whole/spread-seed0")


class Deadly(nn.Module):
    """Ends every process but the one that made it, as long as there is a file `deadly`."""

    def __init__(self) -> None:
        super().__init__()
        self.home = os.getpid()

    def forward(self, x: Tensor) -> Tensor:
        if os.getpid() != self.home and Path("deadly").exists():
            os._exit(0)
        return x


@pytest.fixture
def deadly(umbel: Shell) -> Shell:
    """A run of a network that ends two rounds in, as all its workers do."""
    umbel.monkeypatch.setattr(workers, "PAYS", 1e-9)
    built = MLP.build

    def build(self: MLP, *sizes: object) -> nn.Module:
        return nn.Sequential(Deadly(), built(self, *sizes))  # type: ignore[arg-type]

    umbel.monkeypatch.setattr(MLP, "build", build)
    # The parent could be done before a worker has begun: here workers do all tasks.
    watch = Crew._work_and_watch
    umbel.monkeypatch.setattr(Crew, "_work_and_watch", lambda crew, _: watch(crew, False))
    engine = '\n[engine]\nname = "sequential"\ndevice = "cpu"\nworkers = 2\n'
    (umbel.folder / "spread.toml").write_text(SMALL.format(name="fedavg") + engine)
    return umbel


def test_a_run_whose_workers_die_goes_on_in_one_process(deadly: Shell) -> None:
    deadly("run", "spread.toml", "--runs-dir", "whole")
    folder = RunFolder.create(Path(RUN), RunFolder(WHOLE).experiment)
    next(execute(folder, Sources.default()))
    Path("deadly").touch()
    _, errors = deadly("resume", RUN, status=1)
    assert "round 1: clients of numbers " in errors
    assert "each process that worked for them died (status 0); with engine.workers = 1" in errors
    assert errors.strip().endswith(f"; go on with: umbel resume {RUN} --workers 1")
    deadly("resume", RUN, "--workers", "1")
    found, whole = folder.records(), RunFolder(WHOLE).records()
    assert [record.untimed() for record in found] == [record.untimed() for record in whole]


@pytest.mark.parametrize("count", ["0", "two", "1001"])
def test_a_number_of_workers_is_one_or_more(count: str, umbel: Shell) -> None:
    assert "Invalid value for '--workers'" in umbel.refused("resume", ".", f"--workers={count}")
