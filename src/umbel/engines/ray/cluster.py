"""Chunks of clients, computed by actors of a Ray cluster, on one machine or on many."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from weakref import WeakSet

import numpy as np
import ray
import torch
from ray.exceptions import RayError, RayTaskError
from torch import Tensor

from umbel.checks import ClusterLostError, WorkersDiedError, check, first_line
from umbel.client.work import DURING
from umbel.data.federation import Federation
from umbel.engines.alignment import tensor_of
from umbel.engines.columns import Columns
from umbel.engines.ray.actor import ActorPlace, FailedTask, Recipe, Sent, Slice
from umbel.engines.ray.parts import STARTS, Member, Origin, Task, never_start, placed, why_nobody
from umbel.engines.ray.session import connect, is_there, lenders, new_actor, servers, session
from umbel.engines.sequential import Sequential
from umbel.engines.vectorised import Vectorised
from umbel.flow import Replies, Request
from umbel.summary import few
from umbel.version import ONE_RELEASE, differing

log = logging.getLogger(__name__)

ATTEMPTS = 3
"""Number of actors that may be lost at one task."""

ROUNDS = 8
"""Tasks for each actor in a request: few enough to cost little, many enough to end together."""

WARN_SECONDS = 30.0
"""Seconds without any progress before the log says so."""

AGAIN_SECONDS = 1.0
"""Seconds before an actor is started again after it was lost."""

LOST = "the Ray cluster is lost"
"""Beginning of the error if the whole cluster is gone."""

MOST_ACTORS = 10_000
"""Actors of one run."""

JOINED: WeakSet[RayCluster] = WeakSet()
"""The engines of this process that may hold cores; Ray lets a process join only one cluster."""


@dataclass(eq=False)
class RayCluster:
    """An engine whose chunks are computed by actors, with a thread each.

    The engine within decides on the chunks, so that the replies are the same wherever they are
    computed, if the processors are alike. Each machine is sent its slice of the clients once, and
    others' clients only when it has nothing of its own to do. If all actors are there and a machine
    has none, its slice goes to one that has. An actor takes part as soon as a core of the cluster
    is free for it. Ray starts lost actors again, elsewhere if their machine is gone,
    and their clients are asked again.
    """

    engine: Sequential | Vectorised
    members: list[Member]
    slices: list[tuple[range, Any]]  # clients, and where Ray has them
    homes: list[str]  # the machine of each slice
    recipe: Any  # where Ray has it, for as long as actors may be started
    origin: Origin
    session: tuple[str, str]  # of Ray's, in which all this is known
    # where Ray's processes listen without which it ends this one
    servers: dict[str, tuple[str, int]] = field(default_factory=dict)
    requests: int = 0
    heard_of: set[str] = field(default_factory=set)  # machines whose versions are known
    turn: Any = field(default_factory=threading.Lock)  # held during a request

    def __post_init__(self) -> None:
        JOINED.add(self)

    @classmethod
    def join(
        cls,
        engine: Sequential | Vectorised,
        federation: Federation,
        address: str,
        workers: int | None,
    ) -> RayCluster:
        """Join the cluster at an address, or start one here; by default with an actor a core.

        Raises `UsageError` if no cluster answers at the address, for models in bfloat16, for too
        many workers, and for a builder or objective that can't be pickled.
        """
        kind = str(engine.net.dtype).removeprefix("torch.")
        expected = 'for Ray, which sends NumPy arrays: use workers, or engine.precision = "bf16"'
        check(engine.net.dtype != torch.bfloat16, "the type of the models", kind, expected)
        expected = f"at most {MOST_ACTORS:,} with Ray"
        check(workers is None or workers <= MOST_ACTORS, "engine.workers", workers, expected)
        connect(address)
        machines = lenders()
        homes, cores = list(machines), list(machines.values())
        recipe = Recipe.of(engine, federation).put()
        count = workers or max(1, int(sum(cores)))
        members = [Member() for _ in range(count)]
        sizes = np.cumsum([0, *(engine.storage.train.sizes + 1)])
        cuts = np.searchsorted(sizes, np.cumsum([0, *cores]) / sum(cores) * sizes[-1])
        parts = [range(a, b) for a, b in pairwise(cuts.tolist())]
        slices = [(part, ray.put(Slice.of(engine.storage, part))) for part in parts]
        origin = Origin(federation, address, workers)
        return cls(engine, members, slices, homes, recipe, origin, session(), servers())

    def send(self, request: Request) -> Replies:
        """Answer a request; actors stay for the next one, unless others want their cores."""
        with self.turn:
            if not ray.is_initialized() or session() != self.session:
                self._join_again()
            try:
                self._check_there()
                return self._send(request)
            except (ClusterLostError, RayError, ConnectionError) as error:
                if isinstance(error, ConnectionError) and "ray" not in str(error).lower():
                    raise
                ray.shutdown()  # what Ray still says comes before umbel's line
                if isinstance(error, ClusterLostError):
                    raise
                raise ClusterLostError(f"{LOST} ({first_line(error)})") from None

    def _check_there(self) -> None:
        """Raise `ClusterLostError` if Ray goes down here, before it ends this process."""
        for name, place in self.servers.items():
            if not is_there(place):
                raise ClusterLostError(f"{LOST}: {name} has ended")

    def _join_again(self) -> None:
        """Join the present cluster: Ray was shut down in the meantime."""
        origin = self.origin
        new = RayCluster.join(self.engine, origin.federation, origin.address, origin.workers)
        JOINED.discard(new)
        self.members, self.slices, self.homes = new.members, new.slices, new.homes
        self.recipe, self.session, self.servers = new.recipe, new.session, new.servers

    def _send(self, request: Request) -> Replies:
        columns = Columns(request)
        self.requests += 1
        sent = ray.put(Sent.of(request))
        todo = self._tasks(request)
        busy: dict[Any, tuple[Member, Task | None]] = {}
        free = [member for member in self.members if member.machine is not None]
        heard = time.monotonic()
        while todo or any(task for _, task in busy.values()):
            homes = self._homes()
            while free and todo:
                member = free.pop()
                chosen = _next(todo, member, homes)
                busy[self._ask(member, sent, chosen, request, homes)] = member, chosen
            busy |= {member.asked: (member, None) for member in self._ask_the_missing()}
            ready = ray.wait(list(busy), timeout=AGAIN_SECONDS)[0] if busy else []
            if not busy:
                time.sleep(AGAIN_SECONDS)
            if not ready:
                self._check_there()
            nobody = not any(member.machine for member in self.members)
            if nobody and not ready:
                _rest_of_others(self)
            if nobody and time.monotonic() - heard >= WARN_SECONDS:
                log.warning(why_nobody(self.members))
                heard = time.monotonic()
            for reference in ready:
                member, task = busy.pop(reference)
                member.asked = None
                try:
                    value = ray.get(reference)
                except RayTaskError as error:
                    raise error.cause from None
                except RayError as error:
                    self._lose(member, task, todo, request, error)
                    continue
                self._note_versions(value)
                _take(value, member, task, columns)
                free.append(member)
                heard = time.monotonic()
        return columns.replies()

    def _note_versions(self, place: object) -> None:
        """Log, once a machine, if its actors compute with another umbel or torch than this one."""
        if not isinstance(place, ActorPlace) or place.machine in self.heard_of:
            return
        self.heard_of.add(place.machine)
        if unlike := differing(place.versions, ("umbel", "torch")):
            log.warning("machine %s of the Ray cluster has %s: %s", place.host, unlike, ONE_RELEASE)

    def rest(self) -> None:
        """End the actors, unless they are at work; the next request starts them again."""
        if self.session != session() or not self.turn.acquire(blocking=False):
            return
        try:
            for member in self.members:
                if member.actor is not None:
                    ray.kill(member.actor)
                member.actor = member.machine = member.asked = None
        finally:
            self.turn.release()

    def _ask_the_missing(self) -> Iterator[Member]:
        """Ask actors without a known place where they are; yield those that were asked.

        An actor is started for those who have none.
        """
        for member in self.members:
            if member.machine is None:
                if member.asked is None and time.monotonic() >= member.again:
                    member.actor = member.actor or new_actor()
                    member.asked = member.actor.machine.remote([self.recipe])
                if member.asked is not None:
                    yield member

    def _tasks(self, request: Request) -> list[Task]:
        """The chunks of the engine, in tasks of clients of one slice, most work first."""
        chunks = list(self.engine.chunks(request))
        size = -(-len(chunks) // (ROUNDS * len(self.members)))
        waiting: dict[int, list[Tensor]] = {}
        tasks = []
        for chunk in chunks:
            home = self._slice_of(int(request.clients[chunk[0]]))
            waiting.setdefault(home, []).append(chunk)
            if len(waiting[home]) == size:
                tasks.append(Task(waiting.pop(home), home))
        return tasks + [Task(left, home) for home, left in waiting.items()]

    def _slice_of(self, client: int) -> int:
        return next(n for n, (clients, _) in enumerate(self.slices) if client in clients)

    def _homes(self) -> list[str]:
        """The machine of each slice: one that has an actor, unless some wait for a core."""
        machines = {member.machine for member in self.members if member.machine is not None}
        waiting = any(member.machine is None for member in self.members)
        return self.homes if waiting else placed(self.homes, machines)

    def _ask(
        self, member: Member, sent: Any, task: Task, request: Request, homes: Sequence[str]
    ) -> Any:
        here, others = {}, {}
        split = self.engine.storage.split(request)
        for client in request.clients[torch.cat(task.chunks)].tolist():
            number = self._slice_of(client)
            # The slices have examples of all steps.
            if homes[number] == member.machine and DURING not in request.each:
                here[client] = number, self.slices[number][1]
            else:
                others[client] = tuple(part.numpy() for part in split.of(client))
        chunks = [chunk.numpy() for chunk in task.chunks]
        return member.actor.answer.remote(
            [self.recipe], self.requests, [sent], chunks, here, others
        )

    def _lose(
        self,
        member: Member,
        task: Task | None,
        todo: list[Task],
        request: Request,
        error: RayError,
    ) -> None:
        """Note that an actor is lost, and put its task back. Raises `WorkersDiedError`.

        The slices of machines that are gone are sent to others.
        """
        self._check_there()
        self.homes = placed(self.homes, lenders())
        ray.kill(member.actor)  # it may only be out of reach; another is started in its place
        member.actor = None
        member.again = time.monotonic() + AGAIN_SECONDS
        said = first_line(error)
        if member.machine is None:
            log.info("an actor was lost while it made the network (%s): another is started", said)
            member.lost += 1
            if never_start(self.members):
                raise WorkersDiedError(
                    f"each actor was lost {STARTS} times while it made the network ({said}), as "
                    "happens if a machine's memory is short or its processor is of another kind"
                )
            return
        log.warning("an actor is lost (%s): another is started", said)
        member.machine = None
        if task is None:
            return
        task.attempts += 1
        clients = sorted(request.clients[torch.cat(task.chunks)].tolist())
        if task.attempts >= ATTEMPTS:
            raise WorkersDiedError(
                f"clients of numbers {few([*map(str, clients)])}: each actor that worked for them "
                "was lost"
            )
        todo.insert(0, task)


def _next(todo: list[Task], member: Member, homes: Sequence[str]) -> Task:
    """Take the first task of the member's own machine, or else the first of all."""
    own = (n for n, task in enumerate(todo) if homes[task.home] == member.machine)
    return todo.pop(next(own, 0))


def _take(value: Any, member: Member, task: Task | None, columns: Columns) -> None:
    """Note the place of an actor, or store the rows of its task. Raises the actor's error."""
    if isinstance(value, ActorPlace) and value.failed is not None:
        value = value.failed
    if isinstance(value, FailedTask):
        raise value.error()
    if task is None:
        member.machine, member.lost = value.machine, 0
        return
    for positions, rows in zip(task.chunks, value, strict=True):
        columns.put(positions, {name: tensor_of(row) for name, row in rows.items()})


def _rest_of_others(waiting: RayCluster) -> None:
    """Give back the cores of other runs of this process that are not at work now."""
    for other in list(JOINED):
        if other is not waiting:
            other.rest()
