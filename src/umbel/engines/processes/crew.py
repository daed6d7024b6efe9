"""A crew: forked processes that work through numbered tasks, and may be killed while they do so.

A free worker reads the next task number from a common pipe. It writes results to shared memory, so
that nothing is sent back. A worker that dies is replaced, and what it had begun is done again.
"""

from __future__ import annotations

import gc
import logging
import math
import mmap
import os
import select
import signal
import struct
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from umbel.client.process_locks import SWAPPING, TURN
from umbel.cores import allowed_cores, forget, roam
from umbel.engines.processes.held_signals import held_signals
from umbel.summary import counted

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""A task fails after this many workers have died while they did it.

While all tasks are gone through once, as many dead workers are replaced.
"""

MOST_TASKS = 1024
"""Numbers that every pipe has room for: to a user with many the system gives small ones."""

PATIENCE = 30.0
"""After this many silent seconds the workers' CPU time is checked."""

IDLE = 2
"""Workers are given up after this many checks in a row without CPU time.

One such check is not enough: the machine may have suspended all processes.
"""

WAITING = (
    "no result for %.0f seconds from %s, which used no CPU time either: a network may wait for "
    "ever for its own threads, which workers do not have; this process does all work from now "
    "on, as with engine.workers = 1"
)

DONE, FAILED = 1, 2

ENDED_WELL = b"."
"""Byte that a worker sends when no task is left."""

LOOK_SECONDS = 1.0
"""Seconds between checks that the parent still runs, if its pipe does not report its end."""

FORKING = threading.RLock()
"""Held while both ends of a worker's pipe are open, so that no other crew's worker inherits one."""


class DeathsError(Exception):
    """Raised if too many workers died at one task; `how` says how the last of them ended."""

    def __init__(self, task: int, how: str) -> None:
        super().__init__(f"task {task}: {how}")
        self.task, self.how = task, how


class Crew:
    """This process and others forked from it, each of which calls `do` for the tasks it takes.

    There are at most `MOST_TASKS` tasks.
    """

    def __init__(self, do: Callable[[int], None], tasks: int, processes: int) -> None:
        self.do, self.tasks, self.processes, self.parent = do, tasks, processes, os.getpid()
        self.states = mmap.mmap(-1, max(1, tasks))  # of each task, in memory that all share
        self.attempts = [0] * tasks
        # The second is closed by the system when this process ends.
        self.todo, self.put = os.pipe()
        self.alive, self.stay = os.pipe()
        self.pipes = [self.todo, self.put, self.alive, self.stay]
        os.set_blocking(self.todo, False)
        self.workers: dict[int, int] = {}  # processes, by the pipe that closes when they end
        self.allowed: int | None = None  # processes that the system let begin at the start
        self.idle = 0  # how often in a row workers were silent and did not compute
        self.alone = False  # whether they were given up for that
        self.how = ""  # how the last worker that died has ended
        self.replaced = 0  # how many workers were replaced since tasks were handed out
        self.cores = allowed_cores()

    def run(self) -> None:
        """Do all tasks. Raises `DeathsError`, or what `do` raises."""
        try:
            while left := [task for task in range(self.tasks) if self.states[task] != DONE]:
                for task in left:
                    os.write(self.put, NUMBER.pack(task))
                # The task that ended workers is not done in this process, which it might end, too.
                takes_part = self.alone or not any(self.attempts[task] for task in left)
                self.replaced = 0
                hands = min(len(left), self.processes)
                self._fill(hands - 1 if takes_part else hands)
                self.allowed = self.allowed or self.processes
                self._work_and_watch(takes_part)
                for task in () if self.alone else left:
                    self.attempts[task] += self.states[task] != DONE
                    if self.attempts[task] >= ATTEMPTS:
                        raise DeathsError(task, self.how)
        finally:
            try:
                self._end()
            finally:  # again, if a signal came just before signals were held
                self._end()

    def _work_and_watch(self, takes_part: bool) -> None:
        """Go on until nothing is left to take and nobody is at work."""
        while True:
            self._failures()
            task = self._take() if takes_part or not self.workers else None
            if task is not None:
                self.do(task)
                self.states[task] = DONE
            elif not self.workers:
                return
            self._reap(wait=task is None)

    def _failures(self) -> None:
        """Do a task again here that raised an error in a worker, so that it is raised here."""
        # An error can't be sent as it is: the same task raises it again in this process.
        task = self.states.find(bytes([FAILED]))
        if task >= 0:
            self.do(task)
            self.states[task] = DONE

    def _take(self) -> int | None:
        with suppress(BlockingIOError):
            return int(NUMBER.unpack(os.read(self.todo, NUMBER.size))[0])
        return None

    def _fill(self, wanted: int) -> None:
        """Fork workers until there are `wanted` of them, or as many as the system allows."""
        while len(self.workers) < wanted:
            if error := self._fork():
                log.warning("only %d workers can start: %s", len(self.workers), error)
                self.processes = 1 + len(self.workers)
                break

    def _fork(self) -> OSError | None:
        """Fork a worker; return the error if the system does not allow it."""
        _flush()  # what is not printed yet would be printed by the worker, too
        # A worker would have generators and modules as another thread has them at this moment. An
        # interrupt must wait until each of the two processes knows which of them it is.
        with TURN.lock, SWAPPING.lock, FORKING, held_signals():
            try:
                self._fork_alone()
            except OSError as error:  # not one of a signal's handler, which is called later
                return error
        return None

    def _fork_alone(self) -> None:
        ended, stays = os.pipe()
        try:
            with warnings.catch_warnings():
                # Python warns of threads: they are PyTorch's own, which a worker does not use.
                warnings.simplefilter("ignore", DeprecationWarning)
                process = os.fork()
            if process == 0:
                self._run_worker(stays)
            self.workers[ended] = process
        except OSError:
            os.close(ended)
            raise
        finally:
            os.close(stays)

    def _run_worker(self, stays: int) -> NoReturn:
        """Do tasks in the new process, and end without the parent's exit handlers."""
        task = None
        try:
            # A collection would touch, and so copy, the parent's memory.
            gc.freeze()
            roam(self.cores)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.close(self.stay)
            threading.Thread(target=self._end_with_the_parent, daemon=True).start()
            while os.getppid() == self.parent and (task := self._take()) is not None:
                self.do(task)
                self.states[task] = DONE
        except BaseException:
            if task is not None:
                self.states[task] = FAILED
        finally:
            _flush()
            with suppress(OSError):
                os.write(stays, ENDED_WELL)
            os._exit(0)

    def _end_with_the_parent(self) -> None:
        # The pipe ends when the parent has ended, however that came, unless another crew's worker
        # has a copy of its other end.
        end = select.poll()
        end.register(self.alive)
        while os.getppid() == self.parent and not end.poll(1000 * LOOK_SECONDS):
            pass
        forget(os.getpid())
        os._exit(1)

    def _reap(self, wait: bool) -> None:
        """Remove workers that have ended, and replace those that died during a task."""
        if not self.workers:
            return
        ends = select.poll()
        for pipe in self.workers:
            ends.register(pipe)
        # A worker that waits for ever uses no CPU time; one that is only slow does.
        before = self._computed() if wait else math.nan
        found = ends.poll(1000 * PATIENCE if wait else 0)
        if found:
            self.idle = 0
        elif wait:
            self.idle = self.idle + 1 if self._computed() - before < PATIENCE / 100 else 0
            if self.idle >= IDLE:
                log.warning(WAITING, IDLE * PATIENCE, counted(len(self.workers), "worker"))
                self._stop()
                self.alone, self.processes = True, 1
        for pipe, _ in found:
            said, process = os.read(pipe, 1), self.workers[pipe]
            how = _ended(process)
            del self.workers[pipe]  # now: whoever interrupts it leaves it to `_stop`
            os.close(pipe)
            if said != ENDED_WELL:
                self.how = how
                log.warning(
                    "worker %d died (%s): its unfinished work is done again", process, self.how
                )
                if self.replaced < ATTEMPTS:
                    self.replaced += 1
                    self._fill(len(self.workers) + 1)

    def _computed(self) -> float:
        """CPU seconds of all workers together; NaN if the system does not report them."""
        seconds = 0.0
        for worker in self.workers.values():
            try:
                said = Path(f"/proc/{worker}/stat").read_text(encoding="utf-8")
            except OSError:
                return math.nan
            ticks = said.rpartition(")")[2].split()[11:13]  # in the process, and in the system
            seconds += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        return seconds

    def _stop(self) -> None:
        """End all workers. Signals wait: a second Ctrl-C would leave some of them running."""
        with held_signals():
            for process in self.workers.values():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            while self.workers:
                pipe, process = self.workers.popitem()
                _ended(process)
                os.close(pipe)

    def _end(self) -> None:
        """Leave no process and no pipe behind."""
        with held_signals():
            self._stop()
            while self.pipes:
                os.close(self.pipes.pop())


def _ended(process: int) -> str:
    """Return the end of a process, such as "signal 9", and let the system forget it."""
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    except ChildProcessError:  # SIGCHLD is ignored, so that the system forgets what has ended
        return "unknown how"
    finally:
        forget(process)
    return f"signal {-code}" if code < 0 else f"status {code}"


def _flush() -> None:
    """Flush standard output and error, if they exist."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()


NUMBER = struct.Struct("i")
"""A number in a pipe: so small that it is read and written whole or not at all."""
