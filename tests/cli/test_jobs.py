"""Runs made side by side in processes: the same results, whatever is killed on the way."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.processes import PATIENCE, heeding_signals, wait_until
from tests.shell import SMALL, Shell
from umbel.checks import InUseError
from umbel.cli.jobs import pool as jobs
from umbel.cli.jobs import server as job_server
from umbel.cli.jobs.job import JobError
from umbel.cores import cores
from umbel.folder.run_folder import RunFolder

pytestmark = pytest.mark.long

IN_TURN = ("--set", "engine.name=sequential", "--set", "rounds=3")
"""So that the seeds of a method are units of their own."""

TOGETHER = ("--set", "engine.device=cpu")
"""So that they are one unit, on a machine with a GPU, too."""

METHODS = """
import os, signal, time
from dataclasses import dataclass
from pathlib import Path

import torch
from umbel import FedAvg


@dataclass(frozen=True)
class Fatal(FedAvg):
    \"\"\"Its process is killed in round 1 as often as the file `fuses` has letters.\"\"\"

    def round(self, state, ctx):
        fuses = Path("fuses")
        if ctx.round == 1 and fuses.is_file() and fuses.read_text():
            fuses.write_text(fuses.read_text()[1:])
            os.kill(os.getpid(), signal.SIGKILL)
        return (yield from super().round(state, ctx))


@dataclass(frozen=True)
class Waiting(FedAvg):
    \"\"\"Says who it is, and waits in round 1 until there is a file `go`.\"\"\"

    def round(self, state, ctx):
        if ctx.round == 1:
            Path(f"there-{os.getpid()}").write_text(str(torch.get_num_threads()))
            while not Path("go").exists():
                time.sleep(0.001)
        return (yield from super().round(state, ctx))


@dataclass(frozen=True)
class Broken(FedAvg):
    \"\"\"Has a defect.\"\"\"

    def round(self, state, ctx):
        if ctx.round == 1:
            raise ZeroDivisionError("of mine")
        return (yield from super().round(state, ctx))
"""


@pytest.fixture
def mine(umbel: Shell) -> Shell:
    """A folder with methods of somebody's own, which experiments can name."""
    (umbel.folder / "methods_of_jobs.py").write_text(METHODS)
    umbel.monkeypatch.delitem(sys.modules, "methods_of_jobs", raising=False)
    return umbel


@pytest.fixture
def short() -> Iterator[Path]:
    """An empty folder whose path leaves room for that of a socket."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def experiments(folder: Path, *methods: str) -> str:
    """A comparison of these methods; its name."""
    place = folder / "-".join(methods)
    place.mkdir()
    for name in methods:
        method = name if name.islower() else f"methods_of_jobs:{name}"
        (place / f"{name.lower()}.toml").write_text(SMALL.format(name=method))
    return place.name


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """`umbel WORDS` in a process that may have children, in a group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "umbel", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heeding_signals,
        env={**os.environ, "OMP_NUM_THREADS": "64"},
    )


def wait_for(folder: Path, pattern: str, count: int, process: subprocess.Popen[str]) -> list[Path]:
    """The files of this name, once there are so many."""
    deadline = time.monotonic() + PATIENCE
    while len(found := list(folder.glob(pattern))) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, pattern
        time.sleep(0.001)
    return found


def assert_same(place: Path, other: Path, names: Sequence[str], seeds: int = 2) -> None:
    """Bit for bit, but for the seconds."""
    for name in (f"{name}-seed{seed}" for name in names for seed in range(seeds)):
        found, expected = RunFolder(place / name), RunFolder(other / name)
        assert found.finished
        untimed = [[r.untimed() for r in folder.records()] for folder in (found, expected)]
        assert untimed[0] == untimed[1]
        files = [path.relative_to(other / name) for path in (other / name).rglob("*.safetensors")]
        assert len(files) >= 2
        for file in [*files, Path("clusters.csv"), Path("experiment.toml")]:
            assert (place / name / file).read_bytes() == (other / name / file).read_bytes(), file


def test_any_number_of_jobs_comes_to_the_same(umbel: Shell) -> None:
    for settings in (TOGETHER, IN_TURN):
        for count in ("1", "2", "3"):
            place = ("--runs-dir", f"{count}{len(settings)}", "--jobs", count)
            printed, errors = umbel("compare", "both", "--seeds", "2", *settings, *place)
            assert errors == ""
            which = ("seeds 0, 1",) if settings == TOGETHER else ("seed 0", "seed 1")
            for title in (f"{name} {seeds}" for name in ("fedavg", "flacc") for seeds in which):
                assert any(line.startswith(f"{title}  round 3/") for line in printed.splitlines())
            here = umbel.folder / f"{count}{len(settings)}" / "both"
            one = umbel.folder / f"1{len(settings)}" / "both"
            assert_same(here, one, ("fedavg", "flacc"))
    with umbel.monkeypatch.context() as patched:
        patched.delattr(jobs, "Job")  # as nothing is left, no process is started
        printed, _ = umbel("compare", "both", "--seeds", "2", *place, *settings, "--json")
    assert len(json.loads(printed)) == 4
    printed, _ = umbel("compare", "both", "--seeds", "3", *place, *settings)
    assert printed.count("finished already") == 4
    assert_same(here, umbel.folder / "14" / "both", ("fedavg", "flacc"))


@pytest.mark.parametrize("count", ["0", "two", "1001"])
def test_a_number_of_jobs_is_one_or_more(count: str, umbel: Shell) -> None:
    for command in (("compare", "both"), ("reproduce", "lcfl-fig2")):
        message = umbel.refused(*command, f"--jobs={count}")
        assert "Invalid value for '--jobs'" in message
        assert not Path("runs").exists()


@pytest.mark.thorough
def test_jobs_can_be_started_as_all_systems_can(umbel: Shell) -> None:
    """Elsewhere than on Linux a job loads everything by itself."""
    for module in (jobs, job_server):
        umbel.monkeypatch.setattr(module, "CONTEXT", multiprocessing.get_context("spawn"))
    umbel("compare", "both", "--seeds", "1", "--jobs", "2", "--set", "rounds=1")
    assert RunFolder(umbel.folder / "runs/both/flacc-seed0").finished


@pytest.mark.thorough
def test_as_many_jobs_as_cores_can_be_asked_for(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "1", "--jobs", "auto", "--set", "rounds=1")
    assert RunFolder(umbel.folder / "runs/both/flacc-seed0").finished


def test_what_a_killed_job_was_making_is_made_again(mine: Shell) -> None:
    name = experiments(mine.folder, "Fatal", "fedavg")
    words = ("compare", name, "--seeds", "2", *IN_TURN)
    mine(*words, "--runs-dir", "whole")
    Path("fuses").write_text("x")
    _, errors = mine(*words, "--jobs", "2")
    first, line = errors.splitlines()
    assert first == "imports 'methods_of_jobs:Fatal'"
    assert line.startswith("fatal seed ")
    assert line.endswith(
        ": the process that worked on it was killed (SIGKILL); another continues it"
    )
    assert_same(mine.folder / "runs" / name, mine.folder / "whole" / name, ("fatal", "fedavg"))


def test_what_kills_every_job_ends_the_command(mine: Shell) -> None:
    name = experiments(mine.folder, "Fatal")
    words = ("compare", name, "--seeds", "1", "--set", "rounds=3")
    mine(*words, "--runs-dir", "whole")
    Path("fuses").write_text("xxxxxx")
    _, errors = mine(*words, "--jobs", "2", status=1)
    lines = errors.splitlines()
    assert [line.endswith("another continues it") for line in lines] == [
        False,
        *[True] * 3,
        False,
    ]
    assert lines[-1] == (
        "umbel: fatal seed 0: the process that worked on it was killed (SIGKILL); this has "
        "happened 4 times; fewer --jobs leave more memory for each; go on with: the same command"
    )
    assert Path("fuses").read_text() == "xx"
    Path("fuses").unlink()
    mine(*words, "--jobs", "2")
    assert_same(mine.folder / "runs" / name, mine.folder / "whole" / name, ("fatal",), 1)


@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.thorough),
    ],
)
def test_no_job_outlives_its_parent(how: signal.Signals, mine: Shell, short: Path) -> None:
    mine.monkeypatch.setenv("TMPDIR", str(short))
    name = experiments(mine.folder, "Waiting")
    words = ("compare", name, "--seeds", "2", "--jobs", "2", *IN_TURN)
    process = start(mine.folder, *words)
    there = wait_for(mine.folder, "there-*", 2, process)
    share = max(1, cores() // 2)
    assert [file.read_text() for file in wait_written(there)] == [str(share)] * 2
    if how is signal.SIGINT:
        os.killpg(process.pid, how)  # as a terminal does
    else:
        process.send_signal(how)
    _, errors = process.communicate(timeout=PATIENCE)
    said = "imports 'methods_of_jobs:Waiting'\n"
    if how is signal.SIGINT:
        assert process.returncode == 130
        assert errors == f"{said}stopped; go on with: the same command\n"
    else:
        assert process.returncode == (-how if how is signal.SIGKILL else 128 + how)
        assert errors == said
    if how is not signal.SIGKILL:
        assert not list(short.glob("pymp-*"))
    for seed in (0, 1):  # a job holds the lock of its run until its end
        folder = RunFolder(mine.folder / "runs" / name / f"waiting-seed{seed}")
        wait_until(partial(unlocked, folder), "a job outlived its parent")
        assert len(folder.records()) == 1
    wait_until(lambda: not living(process.pid), "a process outlived its parent")
    Path("go").touch()
    mine(*words)
    mine(*words[:4], *IN_TURN, "--runs-dir", "whole")
    assert_same(mine.folder / "runs" / name, mine.folder / "whole" / name, ("waiting",))


def living(group: int) -> bool:
    """Whether a process of this group is left, where the system tells."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, _, of = file.read_text().rpartition(")")[2].split()[:3]
            if int(of) == group and state != "Z":
                return True
    return False


def unlocked(folder: RunFolder) -> bool:
    """Whether no process works on this run."""
    with suppress(InUseError), folder.locked():
        return True
    return False


def wait_written(files: Sequence[Path]) -> Sequence[Path]:
    """The files, once something is in them."""
    wait_until(lambda: all(file.read_text() for file in files), "a job does not say what it has")
    return files


def test_a_defect_shows_where_it_is(mine: Shell) -> None:
    name = experiments(mine.folder, "Broken")
    mine.monkeypatch.setattr(sys, "argv", ["umbel", "compare", name, "--jobs", "2", *IN_TURN])
    from umbel import cli

    with pytest.raises(JobError, match="ZeroDivisionError: of mine") as error:
        cli.main()
    assert "methods_of_jobs.py" in str(error.value)


def test_what_a_job_notes_is_noted_here(umbel: Shell, caplog: pytest.LogCaptureFixture) -> None:
    umbel("compare", "both", "--seeds", "1", "--jobs", "2", "--set", "privacy.clip=1.0", *IN_TURN)
    noted = [
        record for record in caplog.records if record.name == "umbel.engines.clipping_and_noise"
    ]
    assert noted
    assert "little can be learned" in noted[0].getMessage()


@pytest.mark.thorough
@pytest.mark.usefixtures("real_data")
def test_a_reproduction_can_have_jobs(umbel: Shell) -> None:
    for name in ("lcfl-fig2", "cflgp-fig1"):  # runs by themselves, and seeds side by side
        words = ("reproduce", name, "--size", "smoke", "--seeds", "2")
        values = []
        for count in ("1", "2"):
            printed, errors = umbel(*words, "--jobs", count, "--runs-dir", count)
            assert "Traceback" not in errors
            assert "kept: " in printed
            kept = umbel.folder / count / "reproduce-smoke" / f"{name}-smoke.json"
            values.append({k: v for k, v in json.loads(kept.read_text()).items() if k != "made"})
        assert values[0] == values[1]
        printed, _ = umbel(*words, "--jobs", "2", "--runs-dir", "2")
        assert "round" not in printed.split("Setting")[0]
