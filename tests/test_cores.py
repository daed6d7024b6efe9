"""Processes share the cores of the machine, however OpenMP binds the threads of the first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import umbel
from tests.processes import PATIENCE
from umbel.cores import BINDING, allowed_cores, cores, roaming

ALL = sorted(allowed_cores())

pytestmark = pytest.mark.skipif(len(ALL) < 2, reason="needs Linux and two cores")

LIMIT = "LOKY_MAX_CPU_COUNT"

with pytest.MonkeyPatch.context() as unlimited:
    unlimited.delenv(LIMIT, raising=False)
    counts_two = pytest.mark.skipif(
        min(len(ALL), cores()) < 2, reason="needs two cores that a container's quota allows, too"
    )

START = """
import json, os, time
from pathlib import Path
import torch
from umbel.cores import cores

def told(*of):
    torch.ones(10**6).exp()
    print(json.dumps([*of, sorted(os.sched_getaffinity(0))]), flush=True)
"""

WORKERS = """
from umbel.engines.processes.crew import Crew

parent = os.getpid()

def do(task):
    if os.getpid() == parent:
        while not Path("worked").exists():
            time.sleep(0.01)
    else:
        told("worker")
        Path("worked").touch()

told("parent")
torch.set_num_threads(1)  # as engines do: threads of a forked process may wait for ever
Crew(do, 2, 2).run()
"""

JOBS = """
from umbel.cli.jobs.server import CONTEXT, start

if __name__ == "__main__":
    told("parent")
    process = CONTEXT.Process(target=told, args=("job",))
    start(process)
    process.join()
    told("parent")
"""

COUNT = """
told("cores", cores())
"""


FIRST, *OTHERS = (name for name in BINDING if name != "KMP_AFFINITY")  # of another OpenMP


@pytest.fixture(params=[FIRST, *(pytest.param(n, marks=pytest.mark.thorough) for n in OTHERS)])
def bound(request: pytest.FixtureRequest) -> dict[str, str]:
    """An environment in which OpenMP binds threads to cores."""
    value = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}.get(request.param)
    return {request.param: value or " ".join(map(str, ALL))}


def printed(code: str, bound: dict[str, str], folder: Path) -> list[list[Any]]:
    script = folder / "script.py"
    script.write_text(START + code)
    unbound = {n: v for n, v in os.environ.items() if n not in (*BINDING, LIMIT)}
    with roaming():
        ran = subprocess.run(
            [sys.executable, script],
            env={**unbound, "OMP_NUM_THREADS": "2", **bound},
            cwd=folder,
            check=True,
            timeout=PATIENCE,
            capture_output=True,
            text=True,
        )
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.long
def test_workers_do_not_share_the_core_that_their_parent_is_bound_to(
    bound: dict[str, str], tmp_path: Path
) -> None:
    (_, of_parent), *of_workers = printed(WORKERS, bound, tmp_path)
    assert set(of_parent) < set(ALL)
    assert of_workers
    assert all(worker == ["worker", ALL] for worker in of_workers)


@pytest.mark.long
def test_jobs_do_not_share_the_core_that_their_parent_is_bound_to(
    bound: dict[str, str], tmp_path: Path
) -> None:
    before, of_job, after = printed(JOBS, bound, tmp_path)
    assert of_job == ["job", ALL]
    assert set(before[1]) < set(ALL)
    assert after == before


@pytest.mark.long
@counts_two
def test_cores_are_counted_where_openmp_binds_threads(
    bound: dict[str, str], tmp_path: Path
) -> None:
    ((_, count, of_parent),) = printed(COUNT, bound, tmp_path)
    assert count == printed(COUNT, {}, tmp_path)[0][1] > 1
    assert set(of_parent) < set(ALL)


def test_a_process_that_is_told_to_use_one_core_uses_that(tmp_path: Path) -> None:
    code = f"os.sched_setaffinity(0, {{{ALL[1]}}})" + COUNT
    assert printed(code, {}, tmp_path) == [["cores", 1, ALL[1:2]]]


@pytest.mark.parametrize("value", ["many", "1.5", ""])
def test_a_limit_that_is_no_number_is_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, value)
    with pytest.raises(umbel.UsageError, match=rf"{LIMIT}: '{value}' is not a whole number"):
        cores()
