"""A run whose process is killed while workers are at work leaves nobody, and goes on to the end."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from tests.folder.test_execution import EXPERIMENT, assert_same_end, begin, go_on
from tests.processes import (
    children,
    ended,
    start,
    wait_for_lines,
    wait_until_gone,
)
from umbel.engines import EngineSettings
from umbel.engines.processes import workers
from umbel.engines.processes.workers import can_fork
from umbel.folder.run_folder import RunFolder
from umbel.result.run import finish as end_early

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system does not fork processes")

KILLS = 20


@pytest.mark.long
def test_killed_at_20_random_moments_it_comes_to_the_same_end(tmp_path: Path) -> None:
    draw, at_work = random.Random(0), 0
    experiment = replace(EXPERIMENT, rounds=100 * KILLS)
    experiment = replace(experiment, engine=EngineSettings("sequential", "cpu", workers=3))
    folder = begin(tmp_path / "killed", experiment)
    records = folder.file("records.jsonl")
    for _ in range(KILLS):
        done = records.read_bytes().count(b"\n") if records.is_file() else 0
        process = start(go_on_by_workers, folder, experiment.rounds)
        wait_for_lines(process, records, done + 1)
        time.sleep(draw.random() / 10)  # a round takes less: any moment of it
        left = killed(process)
        at_work += bool(left)
        wait_until_gone(left)
    assert at_work > 0, "no worker was ever at work"
    assert ended(start(go_on_by_workers, folder, 1)) == 0
    alone = begin(
        tmp_path / "whole",
        replace(experiment, engine=EngineSettings("sequential", "cpu", workers=1)),
    )
    go_on(alone, len(folder.records()))
    for run in (folder, alone):
        end_early(run.path)
    assert_same_end(folder, alone)


def go_on_by_workers(folder: RunFolder, rounds: int) -> None:
    """Go on, with workers for requests that are too small to pay for them."""
    workers.PAYS = 1e-9
    go_on(folder, rounds)


def killed(process: ForkServerProcess) -> set[int]:
    """Kill a process, and return the workers that it had then."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)  # it forks no more
    at_work = children(process.pid)
    process.kill()
    assert ended(process) == -signal.SIGKILL
    return at_work
