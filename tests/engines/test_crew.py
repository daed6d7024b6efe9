"""A crew does every task, whoever dies at it, and leaves no process behind."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.processes import PATIENCE, children, wait_until
from umbel.client.process_locks import SWAPPING, TURN, Turn
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


@pytest.mark.long
def test_workers_killed_at_random_moments_are_replaced(caplog: pytest.LogCaptureFixture) -> None:
    draw, done, parent = random.Random(0), squares(30), os.getpid()
    before = children(parent)

    def do(task: int) -> None:
        x = torch.randn(60, 60, generator=torch.Generator().manual_seed(task))
        for _ in range(20):
            x = torch.tanh(x @ x / 8)
        done[task] = float(x.sum())

    def kill(over: threading.Event) -> None:
        while not (there := children(parent) - before):
            if over.wait(0.0005):
                return
        time.sleep(draw.random() / 200)
        with suppress(ProcessLookupError):  # it may have done its work and ended before
            os.kill(draw.choice(sorted(there)), signal.SIGKILL)

    Crew(do, 30, 1).run()
    expected = done.clone()
    for _ in range(20):
        done.zero_()
        over = threading.Event()
        killer = threading.Thread(target=kill, args=(over,), daemon=True)
        killer.start()
        try:
            Crew(do, 30, 3).run()
        finally:
            over.set()
        killer.join()
        assert torch.equal(done, expected)
    assert "died (signal 9)" in caplog.text  # some were at work


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


def test_what_is_printed_is_printed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = squares(1)

    def do(task: int) -> None:
        print("task", task)  # noqa: T201
        here[0] += 1
        while here[0] < 2:  # several take part
            time.sleep(0.001)

    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        print("before")  # noqa: T201
        Crew(do, 6, 3).run()
        print("after")  # noqa: T201
    lines = (tmp_path / "out").read_text().splitlines()
    assert sorted(lines[1:-1]) == [f"task {task}" for task in range(6)]
    assert (lines[0], lines[-1]) == ("before", "after")


def test_ctrl_c_right_after_a_fork_is_the_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    done, strayed, parent, fork = squares(4), squares(1), os.getpid(), os.fork

    def interrupted() -> int:
        process = fork()
        if process == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return process

    def do(task: int) -> None:
        done[task] = 1

    monkeypatch.setattr(os, "fork", interrupted)
    try:
        Crew(do, 4, 3).run()
    finally:
        if os.getpid() != parent:
            strayed[0] = 1
            os._exit(1)
    assert done.all()
    assert not strayed[0]


MEANWHILE: list[Callable[[], object]] = []
"""What this process calls while it forks."""

if can_fork():
    os.register_at_fork(after_in_parent=lambda: [call() for call in MEANWHILE])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_that_another_thread_takes_during_a_fork_is_heard_after_it(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise TimeoutError

    def take() -> None:
        go.wait()
        signal.raise_signal(number)
        taken.set()

    def send() -> None:
        go.set()
        taken.wait()

    go, taken = threading.Event(), threading.Event()
    other = threading.Thread(target=take)
    other.start()
    monkeypatch.setitem(globals(), "MEANWHILE", [send])
    before = signal.signal(number, stop)
    try:
        with pytest.raises(TimeoutError):
            Crew(lambda _: None, 2, 2).run()
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, before)
        go.set()
        other.join()


def test_a_worker_has_the_handlers_of_its_parent() -> None:
    heard = squares(1)

    def hear(*_: object) -> None:
        heard[0] = os.getpid()

    def do(_: int) -> None:
        if os.getpid() != parent:
            signal.raise_signal(signal.SIGUSR1)
        while not heard[0]:
            time.sleep(0.001)

    parent, before = os.getpid(), signal.signal(signal.SIGUSR1, hear)
    try:
        Crew(do, 2, 2).run()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard[0] != parent


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
    assert "only 0 workers are used: others die before they begin" in caplog.text
    assert caplog.text.count("died (status 3)") <= crew.ATTEMPTS + 3


def test_workers_that_compute_for_long_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "PATIENCE", 0.5)
    parent, taken, done = os.getpid(), squares(1), squares(2)

    def do(task: int) -> None:
        end = time.process_time() + (2.0 if os.getpid() != parent else 0)
        taken[0] += os.getpid() != parent
        while time.process_time() < end or not taken[0]:
            pass
        done[task] = os.getpid()

    crowd = Crew(do, 2, 2)
    crowd.run()
    assert not crowd.alone
    assert len({*done.tolist()}) == 2


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


def test_ctrl_c_at_the_end_of_each_worker_leaves_nobody_and_no_pipe_behind() -> None:
    parent, there = os.getpid(), squares(5)
    pipes = {each.name for each in Path("/proc/self/fd").iterdir()}

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt  # as on Ctrl-C, which may be ignored where tests run

    def do(task: int) -> None:
        there[task] = 1
        if os.getpid() != parent:
            time.sleep(PATIENCE)
        while not there.all():
            time.sleep(0.001)
        interrupt()

    # The system sends it when a worker ends: the first of them when it is killed after Ctrl-C.
    before = signal.signal(signal.SIGCHLD, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            Crew(do, 5, 5).run()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert {each.name for each in Path("/proc/self/fd").iterdir()} == pipes


def test_ctrl_c_while_a_worker_is_waited_for_leaves_nobody_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited, interrupts = os.waitpid, [KeyboardInterrupt]

    def interrupted(process: int, options: int) -> tuple[int, int]:
        if interrupts:
            raise interrupts.pop()
        return waited(process, options)

    monkeypatch.setattr(os, "waitpid", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Crew(lambda _: None, 2, 2).run()


@pytest.mark.parametrize("turn", [TURN, SWAPPING], ids=["drawing", "swapping"])
def test_nobody_draws_or_swaps_tensors_while_a_worker_is_forked(
    turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that another thread held would be held for ever in the worker."""
    fork, free = os.fork, list[bool]()

    def asked() -> None:
        free.append(turn.lock.acquire(blocking=False))
        if free[-1]:
            turn.lock.release()

    def forked() -> int:
        other = threading.Thread(target=asked)
        other.start()
        other.join()
        return fork()

    monkeypatch.setattr(os, "fork", forked)
    Crew(lambda _: None, 2, 2).run()
    assert free == [False]
    asked()
    assert free == [False, True]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no /dev/shm")
def test_what_openmp_notes_of_a_worker_goes_with_it() -> None:
    """LLVM's and Intel's libraries remove it at a normal exit alone, which no worker has."""
    name = "/dev/shm/__KMP_REGISTERED_LIB_{}_" + str(os.getuid())
    who = squares(2)

    def do(task: int) -> None:
        if os.getpid() != parent:
            Path(name.format(os.getpid())).touch()
        who[task] = os.getpid()
        while not who.all():
            time.sleep(0.001)

    parent = os.getpid()
    Crew(do, 2, 2).run()
    workers = {int(process) for process in who.tolist()} - {parent}
    assert len(workers) == 1
    assert not any(Path(name.format(worker)).exists() for worker in workers)


def test_where_the_system_forgets_who_has_ended_all_is_done_as_well() -> None:
    done, parent = squares(6), os.getpid()

    def do(task: int) -> None:
        if os.getpid() != parent and not done[5]:
            done[5] = 1
            os._exit(3)
        while not done[5]:
            time.sleep(0.001)
        done[task] = 1

    others, before = children(parent), signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        some = Crew(do, 5, 3)
        some.run()
        # who ends after this would have to be waited for
        wait_until(lambda: children(parent) <= others, "a worker does not end")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert done.all()
    assert some.how == "unknown how"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the size of pipes is Linux's")
def test_more_tasks_than_a_small_pipe_has_room_for_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import fcntl

    def small_pipe() -> tuple[int, int]:
        ends = pipe()
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 4096)
        return ends

    pipe = os.pipe
    monkeypatch.setattr(os, "pipe", small_pipe)
    done = squares(4000)

    def do(task: int) -> None:
        done[task] += 1

    some = Crew(do, 4000, 2)
    some.run()
    assert done.tolist() == [1] * 4000
    assert not any(some.attempts)  # nobody has died at any


def test_a_task_that_was_not_handed_out_has_cost_no_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crew, "room", lambda _: 3)
    done, deaths = squares(40), squares(40)

    def do(task: int) -> None:
        if task == 35 and deaths[task] < crew.ATTEMPTS - 1:
            deaths[task] += 1
            os.kill(os.getpid(), signal.SIGKILL)
        done[task] += 1

    parent = os.getpid()
    some = Crew(lambda task: None if os.getpid() == parent and task == 35 else do(task), 40, 3)
    some.run()
    assert some.attempts[36:] == [0] * 4
