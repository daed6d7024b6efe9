"""The numbers of a run for Prometheus, over HTTP in the form of OpenMetrics while it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from umbel.algorithms.base import State
from umbel.checks import UsageError, check
from umbel.experiment.toml_file import plain
from umbel.flow import Replies, Request
from umbel.folder.execution import Plan, records_of, states_of
from umbel.folder.run_folder import RunFolder
from umbel.run.records import Record
from umbel.run.rounds import Rounds
from umbel.run.story import moved

LOOPBACK = "127.0.0.1"

LABELS = ("run", "method")

COUNTERS = {
    "rounds": "Rounds done, with those before the run was resumed.",
    "clients_asked": "Clients asked to take part in a round; its evaluation may ask others.",
    "clients_answered": "Clients asked in a round that are not among the missing ones.",
    "clients_missing": "Clients that gave no answer in a round or its evaluation.",
    "clients_refused": "Clients whose answer in a round was not used.",
    "clients_bounded": "Clients whose answer was used in part, clipped by the limits.",
    "clients_joined": "Clients that came before a round, or came back.",
    "clients_left": "Clients that left before a round.",
    "clients_moved": "Clients in another cluster than after the round before.",
    "sent_bytes": "Bytes sent to clients, without evaluation.",
    "received_bytes": "Bytes received from clients, without evaluation.",
}
"""Counters and their meanings; Prometheus calls them `umbel_rounds_total` and so on."""

GAUGES = {
    "planned_rounds": "Rounds that the run is to have, if that is planned.",
    "last_round_timestamp_seconds": "Time of the last round's end, or of the start before it.",
    "clusters": "Clusters that have clients.",
    "accuracy": "Mean over clients of the accuracy, on validation examples if there are any.",
    "loss": "Mean over clients of the loss, on validation examples if there are any.",
    "clients_suspicious": "Clients with a suspicion above limits.quarantine.",
    "step": "Step of time, counted from 0, in runs that have such.",
    "clients_drifted": "Clients that the method found to have drifted at this step.",
    "epsilon": "Largest epsilon of a client by the server's count; a node's ledger is exact.",
    "epsilon_limit": "Epsilon beyond which nodes refuse, from privacy.max_epsilon.",
}
"""Values that may fall, and their meanings."""

BUCKETS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600)
"""Bounds in seconds of the histogram of rounds."""


def address_of(text: str, name: str) -> tuple[str, int]:
    """Read `PORT` or `HOST:PORT`; without a host it is the loopback. Port 0: any that is free.

    Raises `UsageError`, which begins with the setting's `name`, for anything else.
    """
    host, _, port = text.rpartition(":")
    fine = port.isdecimal() and len(port) < 6 and int(port) < 2**16
    check(fine and text != f":{port}", name, text, "PORT or HOST:PORT, such as 9464")
    return host.strip("[]") or LOOPBACK, int(port)


@contextmanager
def exposed(
    address: tuple[str, int] | None,
    folder: RunFolder,
    run: Rounds,
    plan: Plan,
    say: Callable[[str], None],
) -> Iterator[Iterator[Record]]:
    """Give the remaining rounds of a locked folder; at an address, serve their numbers meanwhile.

    `say` is told the URL. Raises `UsageError` without the library, and for an address that can't be
    listened at.
    """
    if address is None:
        yield records_of(folder, run, plan)
        return
    try:
        from prometheus_client import start_http_server
    except ImportError:
        raise UsageError('metrics: needs an extra: pip install "umbel[metrics]"') from None
    numbers = Numbers(run, folder.path.name, plain(plan.experiment.algorithm)["name"])
    numbers.set("planned_rounds", plan.experiment.planned_rounds)
    numbers.set("epsilon_limit", run.privacy.max_epsilon)
    host, port = address
    try:
        server, thread = start_http_server(port, host, numbers.registry)
    except OSError as error:
        raise UsageError(f"metrics: {host}:{port}: {error.strerror}") from None
    shown = f"[{host}]" if ":" in host else host
    try:
        say(f"metrics: http://{shown}:{server.server_port}/metrics")
        yield numbers.of(states_of(folder, run, plan, numbers.answer))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Numbers:
    """The families of one run, and what is counted for them."""

    run: Rounds
    name: str
    method: str
    before: State | None = None  # after the last round
    asked: set[tuple[int, int]] = field(default_factory=set)  # in this round: client, request
    releases: Counter[int] = field(default_factory=Counter)  # updates by client, with privacy

    def __post_init__(self) -> None:
        from prometheus_client import CollectorRegistry, Gauge, Histogram
        from prometheus_client import Counter as Total

        self.registry = CollectorRegistry()

        def made(kind: Any, name: str, text: str, **more: Any) -> Any:
            family = kind(f"umbel_{name}", text, LABELS, registry=self.registry, **more)
            return lambda: family.labels(self.name, self.method)

        self.totals = {name: made(Total, name, text)() for name, text in COUNTERS.items()}
        self.gauges = {name: made(Gauge, name, text) for name, text in GAUGES.items()}
        lasts = "Seconds that a round lasts, without evaluation."
        self.seconds = made(Histogram, "round_seconds", lasts, buckets=BUCKETS)()
        self.gauges["last_round_timestamp_seconds"]().set_to_current_time()

    def set(self, name: str, value: float | None) -> None:
        """Set a gauge; one of an unknown value keeps the last one, or is left out."""
        if value is not None:
            self.gauges[name]().set(value)

    def answer(self, request: Request) -> Replies:
        """Have the clients answer, and note whose updates the round may have released."""
        if request.work.split == "train":
            self.asked |= {(client, request.number) for client in request.clients.tolist()}
        return self.run.answer(request)

    def of(self, rounds: Iterator[tuple[State, Record]]) -> Iterator[Record]:
        """Count each round before its record is given."""
        for state, record in rounds:
            self._note(state, record)
            yield record

    def _note(self, state: State, record: Record) -> None:
        totals = self.totals
        if self.before is None:  # the first round of this session
            totals["rounds"].inc(record.round)
        cohort = self._cohort(record.round)
        others: Sized = record.moved or ()
        if record.moved is None and self.before is not None:  # without membership
            others = moved(self.before, state)
        spent = {
            "rounds": 1,
            "clients_asked": len(cohort),
            "clients_answered": len({*cohort}.difference(record.missing)),
            "clients_missing": len(record.missing),
            "clients_refused": len(record.refused),
            "clients_bounded": len(record.bounded),
            "clients_joined": len(record.joined or ()),
            "clients_left": len(record.left or ()),
            "clients_moved": len(others),
            "sent_bytes": record.bytes_down,
            "received_bytes": record.bytes_up,
        }
        for name, value in spent.items():
            totals[name].inc(value)
        self.seconds.observe(record.seconds)
        for name in ("accuracy", "loss"):
            self.set(name, record.judged(name))
        self.set("clusters", record.num_clusters)
        self.set("step", record.step)
        if record.suspicion is not None:
            limit = self.run.limits.quarantine or 0
            self.set("clients_suspicious", sum((s or 0) > limit for s in record.suspicion))
        self.set("clients_drifted", record.measures.get("drifted"))
        if self.run.privacy.clip is not None:
            self.set("epsilon", self._epsilon(record.round))
        self.gauges["last_round_timestamp_seconds"]().set_to_current_time()
        self.before, self.asked = state, set()

    def _epsilon(self, number: int) -> float:
        """The largest epsilon of a client: each request may have released an update."""
        if self.before is None:  # of each round before this session, one request is assumed
            for earlier in range(number):
                self.releases.update(self._cohort(earlier))
        self.releases.update(client for client, _ in self.asked)
        return self.run.privacy.epsilon(max(self.releases.values(), default=0))

    def _cohort(self, number: int) -> list[int]:
        run = self.run.now()
        cohort = run.context(number, number + 1).cohort.numpy()
        numbers: list[int] = run.client_numbers(number)[cohort].tolist()
        return numbers
