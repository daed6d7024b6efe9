"""A crew does every task, whoever dies at it, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.processes import PATIENCE, children
from umbel.engines.columns import shared
from umbel.engines.processes import crew
from umbel.engines.processes.crew import Crew, DeathsError
from umbel.engines.processes.workers import can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system does not fork processes")


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    before = children(os.getpid())
    yield
    assert children(os.getpid()) <= before


@pytest.fixture(autouse=True)
def nobody_waits_for_ever() -> Iterator[None]:
    """A task that waits for one of another process fails where that is never begun."""

    def stop(*_: object) -> None:
        raise AssertionError("a task waits for ever")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def squares(count: int) -> Tensor:
    return shared((count,), torch.float64)


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
@pytest.mark.parametrize("tasks", [1, 2, 40])
def test_every_task_is_done_once(processes: int, tasks: int) -> None:
    done = squares(tasks)

    def do(task: int) -> None:
        done[task] += task**2 + 1

    Crew(do, tasks, processes).run()
    assert done.tolist() == [task**2 + 1 for task in range(tasks)]


def test_several_processes_take_part() -> None:
    who = squares(2)

    def do(task: int) -> None:
        who[task] = os.getpid()
        while not who.all():  # the other task is somebody else's
            time.sleep(0.001)

    Crew(do, 2, 2).run()
    assert os.getpid() in who.tolist()
    assert who[0] != who[1]


def test_what_a_worker_had_begun_is_done_again(caplog: pytest.LogCaptureFixture) -> None:
    done, deaths, parent = squares(6), squares(1), os.getpid()

    def do(task: int) -> None:
        if os.getpid() != parent and not deaths[0]:
            deaths[0] += 1
            os.kill(os.getpid(), signal.SIGKILL)
        while os.getpid() == parent and not deaths[0]:
            time.sleep(0.001)
        done[task] = 1

    Crew(do, 6, 2).run()
    assert done.all()
    assert "died (signal 9): its unfinished work is done again" in caplog.text


MEANWHILE: list[Callable[[], object]] = []
"""What this process calls while it forks."""

if can_fork():
    os.register_at_fork(after_in_parent=lambda: [call() for call in MEANWHILE])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not say")
def test_work_of_workers_that_wait_for_ever_is_done_here(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(crew, "PATIENCE", 0.05)
    parent, taken, done = os.getpid(), squares(1), squares(9)

    def do(task: int) -> None:
        if os.getpid() != parent:
            taken[0] = 1
            threading.Event().wait()
        while not taken[0]:
            time.sleep(0.001)
        done[task] = 1

    stuck = Crew(do, 9, 3)
    stuck.run()
    assert done.all()
    assert stuck.alone
    assert "this process does all work from now on, as with engine.workers = 1" in caplog.text


def test_workers_that_die_before_they_begin_are_not_replaced_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(crew, "roam", lambda _: os._exit(3))  # what a worker does first
    done = squares(9)

    def do(task: int) -> None:
        done[task] += 1

    Crew(do, 9, 3).run()
    assert done.tolist() == [1] * 9
    assert caplog.text.count("died (status 3)") <= crew.ATTEMPTS + 2


@pytest.mark.parametrize("name", ["fork", "pipe"])
def test_there_are_as_many_workers_as_the_system_allows(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise OSError("too many")

    done = squares(3)

    def do(task: int) -> None:
        done[task] = 1

    few = Crew(do, 3, 3)
    monkeypatch.setattr(os, name, refuse)
    few.run()
    assert done.all()
    assert "only 0 workers can start: too many" in caplog.text


def test_a_task_that_ends_all_who_take_it_is_given_up() -> None:
    parent, taken = os.getpid(), squares(1)

    def do(_: int) -> None:
        if os.getpid() != parent:
            taken[0] += 1
            os.kill(os.getpid(), signal.SIGKILL)
        while not taken[0]:
            time.sleep(0.001)

    with pytest.raises(DeathsError) as raised:
        Crew(do, 2, 2).run()
    assert raised.value.task in (0, 1)
    assert raised.value.how == "signal 9"
    assert taken[0] == crew.ATTEMPTS


def test_an_error_in_a_worker_is_raised_here_and_all_others_end() -> None:
    parent, met = os.getpid(), squares(1)

    def do(task: int) -> None:
        if os.getpid() != parent:
            met[0] = 1
            raise ValueError("a fault of this task")
        while not met[0]:
            time.sleep(0.001)
        if task == 1:
            raise ValueError("a fault of this task")

    with pytest.raises(ValueError, match="a fault of this task"):
        Crew(do, 2, 2).run()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_whoever_interrupts_it_leaves_nobody_behind(error: type[BaseException]) -> None:
    parent, there = os.getpid(), squares(1)

    def do(_: int) -> None:
        if os.getpid() != parent:
            there[0] = 1
            time.sleep(PATIENCE)
        while not there[0]:
            time.sleep(0.001)
        raise error

    with pytest.raises(error):
        Crew(do, 3, 3).run()
