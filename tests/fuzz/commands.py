"""Wrong inputs for the command line: each must end in one line, quickly, with nothing written."""

from __future__ import annotations

import contextlib
import io
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from unittest.mock import patch

import click

from tests.fuzz.data import write_data
from tests.fuzz.inputs import Wrong
from tests.fuzz.settings import EXTREME, settings
from tests.fuzz.words import WORDS
from umbel import checks, cli

SECONDS, PATIENCE = 1.0, 30
"""Most work on one input; and the time after which it is stopped."""

LONGEST = 1_010
"""Characters of the line that is said."""

GROWTH = 200
"""MiB by which all refusals together may make the process larger; runs may take what they need."""

SMALL = """
rounds = 1
[scenario]
name = "rotated-digits"
clients = 4
examples = [20]
[model]
name = "mlp"
hidden = [4]
[algorithm]
name = "fedavg"
[algorithm.local]
epochs = 1
"""


class _TooSlowError(BaseException):
    """Not to be taken for something that went wrong with an input."""


@dataclass(frozen=True)
class Outcome:
    """What came of one input."""

    status: int
    said: list[str]  # lines on standard error
    escaped: str  # the end of a traceback; empty without one
    seconds: float  # of processor time
    written: list[str]  # files and folders that were not there before

    def fault(self, wrong: Wrong) -> str | None:
        """What should not be; None if all is well."""
        if self.escaped:
            return self.escaped
        if self.status not in wrong.ends:
            return f"ends with status {self.status}: {self.said}"
        # What is imported is said before, and a run that fails may have warned.
        lines = [line for line in self.said if not line.startswith("imports ")]
        lines = lines[-1:] if self.status == cli.FAILED else lines
        if self.status and (len(lines) != 1 or len(lines[0]) > LONGEST):
            return f"says {len(self.said)} lines: {self.said}"
        if any("Warning: " in line or "Traceback" in line for line in self.said):
            return f"warns: {self.said}"
        if self.status == cli.BAD_INPUT and self.written:
            return f"leaves {self.written}"
        slow = self.status == cli.BAD_INPUT and self.seconds > SECONDS
        return f"takes {self.seconds:.1f} s" if slow else None


def of_settings(count: int, seed: int) -> Iterator[Wrong]:
    """Settings drawn at random, each with a value that it hardly takes."""
    drawn, paths = random.Random(seed), list(settings())
    for _ in range(count):
        chosen, path = drawn.choice(paths)
        yield of_setting(chosen, path, drawn.choice(EXTREME))


def of_setting(chosen: tuple[str, ...], path: str, value: str) -> Wrong:
    """One setting: it may be right after all, or what makes the run fail."""
    words = [word for setting in (*chosen, f"{path}={value}") for word in ("--set", setting)]
    arguments = ("run", "small.toml", "--max-time", "0.01s", "--data-dir", "data", *words)
    return Wrong(f"{path}={value[:60]}", arguments, write_data, ends=(0, 1, 2))


def attack(wrong: Wrong) -> Outcome:
    """Give it to the command line, in a folder of its own, in this process."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder = Path(name).resolve()
        (folder / "small.toml").write_text(SMALL)
        wrong.prepare(folder)
        before = _files(folder)
        said, written = _stream(), _stream()
        began = time.process_time()
        status, escaped = 0, ""
        with _own(wrong.arguments, folder), _patience(), warnings.catch_warnings():
            warnings.simplefilter("default")
            with contextlib.redirect_stdout(written), contextlib.redirect_stderr(said):
                try:
                    cli.main()
                except SystemExit as end:
                    status = end.code if isinstance(end.code, int) else 0
                except BaseException as error:
                    escaped = "".join(traceback.format_exception(error)[-3:])
        seconds = time.process_time() - began
        said.seek(0)
        lines = [line for line in said.read().splitlines() if not line.startswith("imports '")]
        return Outcome(status, lines, escaped, seconds, sorted(_files(folder) - before))


def main(count: int, seed: int = 0) -> int:
    """All of the corpus, and so many settings. Prints what failed, and the figures: 1 if any."""
    attack(Wrong("to load everything", ("run", "small.toml")))
    began, grown = time.perf_counter(), 0.0
    slowest, failed, ends = 0.0, 0, {0: 0, 1: 0, 2: 0}
    for wrong in (*WORDS, *of_settings(count, seed)):
        size = memory()
        outcome = attack(wrong)
        if outcome.seconds > SECONDS:  # what was slow by chance is not so twice
            outcome = attack(wrong)
        fault = outcome.fault(wrong)
        ends[outcome.status] = ends.get(outcome.status, 0) + 1
        if fault is not None:
            failed += 1
            click.echo(f"{wrong.name}: {fault}")
        if outcome.status == cli.BAD_INPUT:
            slowest = max(slowest, outcome.seconds)
            grown += (memory() - size) / 2**20
    took = time.perf_counter() - began
    click.echo(
        f"{sum(ends.values()):,} inputs in {took:.0f} s: {ends[2]:,} refused, "
        f"{ends[1]:,} failed in the run, {ends[0]:,} taken; {failed:,} not as they should be; "
        f"the slowest refusal took {slowest:.2f} s, and all refusals {grown:.0f} MiB"
    )
    return 1 if failed or grown > GROWTH else 0


def _files(folder: Path) -> set[str]:
    files = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return {file for file in files if "__pycache__" not in file}  # Python's, of a module imported


def _stream() -> io.TextIOWrapper:
    """Strict, as that of a terminal is."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextlib.contextmanager
def _own(arguments: tuple[str, ...], folder: Path) -> Iterator[None]:
    """What a process of its own would have: arguments, a path for modules, a cache.

    It has no more memory than 16 GiB, for which the wrong numbers are too large on any machine.
    """
    before, path, modules = sys.argv, list(sys.path), set(sys.modules)
    environment = dict(os.environ)
    sys.argv = ["umbel", *arguments]
    os.environ["UMBEL_CACHE_DIR"] = str(folder.parent / f"{folder.name}-cache")
    free = checks.free_memory
    try:
        with patch.object(checks, "free_memory", lambda: min(free(), 2**34)):
            yield
    finally:
        sys.argv, sys.path[:] = before, path
        for name in set(sys.modules) - modules:
            if name.startswith("own_"):
                del sys.modules[name]
        os.environ.clear()
        os.environ.update(environment)


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Stop what takes too long, where this is the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise _TooSlowError(f"stopped after {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
