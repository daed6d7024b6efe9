"""The Ray cluster that this process is a part of: its address, its machines, and new actors."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from typing import Any

import ray

from umbel.checks import UsageError, first_line
from umbel.client.imports import places
from umbel.cores import roaming
from umbel.engines.ray.actor import Actor

KNOCK_SECONDS = 10.0
"""Seconds that an address has to answer."""

TOKEN = "if it asks for a token, set RAY_AUTH_MODE=token"
"""Ray shows its token by itself to a cluster that it has found, and not at an address."""


SHORTER = "set RAY_TMPDIR to a shorter path, such as /tmp"
"""Ray's sockets are files in its folder of temporary files, and paths of sockets are limited."""


ADDRESSES: dict[tuple[str, str], str] = {}
"""The address at which this process joined its present cluster, by `session`."""


def connect(address: str) -> None:
    """Join the cluster at an address, or start one here; once a process.

    Raises `UsageError` where nobody answers there, or this process is a part of another cluster.
    """
    if ray.is_initialized():
        _check_joined(address)
        return
    _knock(address)
    before = signal.getsignal(signal.SIGTERM)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        with roaming():
            ray.init(address=address or "local", include_dashboard=False, **quiet)
    except Exception as error:  # a bare one if a busy machine starts Ray too slowly
        said = first_line(error)
        hint = "" if address in ("", "auto") else f"; {TOKEN}"
        hint += f"; {SHORTER}" if "AF_UNIX" in said else ""
        message = f"engine.address: {address!r}: no Ray cluster: {said}{hint}"
        raise UsageError(message) from None
    ADDRESSES.clear()
    ADDRESSES[session()] = address
    if callable(before) and threading.current_thread() is threading.main_thread():
        # Ray's own would write where each thread is to the terminal before it ends the process.
        signal.signal(signal.SIGTERM, before)


def session() -> tuple[str, str]:
    """Return a name for this process's membership of a cluster, new after `ray.shutdown()`."""
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


def servers() -> dict[str, tuple[str, int]]:
    """Return the addresses of the Ray processes that this one needs; none for a Ray client."""
    if ADDRESSES.get(session(), "").startswith("ray://"):
        return {}
    own, _ = session()
    host, _, port = str(ray.get_runtime_context().gcs_address).rpartition(":")
    found = {"the head of the cluster": (host, int(port))}
    for node in ray.nodes():
        if node["NodeID"] == own:
            place = str(node["NodeManagerAddress"]), int(node["NodeManagerPort"])
            found["its process on this machine (the raylet)"] = place
    return found


def is_there(place: tuple[str, int]) -> bool:
    """Return False if nothing listens at an address; True if that can't be found out."""
    try:
        socket.create_connection(place, KNOCK_SECONDS).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True


def _check_joined(address: str) -> None:
    """Raise `UsageError` for the address of a cluster that this process has not joined."""
    if ":" not in address:
        return
    joined = ""
    if address.startswith("ray://"):
        # Nobody knows the address that a user gave to `ray.init`, which may be the same.
        joined = ADDRESSES.get(session(), address)
    if not joined.startswith("ray://"):
        joined = str(ray.get_runtime_context().gcs_address)
    here, there = _place(address), _place(joined)
    if address.startswith("ray://") != joined.startswith("ray://"):  # clients have another port
        here, there = (place.rpartition(":")[0] for place in (here, there))
    if here != there:
        how = "a process can join only one cluster: call ray.shutdown() first"
        raise UsageError(f"engine.address: {address!r}: this process is part of {joined}; {how}")


def _place(address: str) -> str:
    """Return an address with its host as a number, if that is known."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        return f"{socket.gethostbyname(host)}:{port}"
    except OSError:
        return address


def _knock(address: str) -> None:
    """Raise `UsageError` if nothing answers at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host, int(port)), KNOCK_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:
        raise UsageError(f"engine.address: {address!r}: no Ray cluster: {error}") from None


def lenders() -> dict[str, float]:
    """The machines of the cluster that lend cores, by name, and how many cores each lends.

    If there is none, they are all machines, as if each lent one.
    """
    alive = sorted((node["NodeID"], node["Resources"]) for node in ray.nodes() if node["Alive"])
    lent = {name: float(resources.get("CPU", 0.0)) for name, resources in alive}
    return {name: cores for name, cores in lent.items() if cores} or dict.fromkeys(lent, 1.0)


def new_actor() -> Any:
    """An actor, as soon as there is a core for it.

    Ray must not restart it: until a restarted actor is there, what it is asked fails, with the same
    error as if it were lost again (`ActorUnavailableError`, seen with Ray 2.60.0).
    """
    remote = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Actor)
    return remote.remote(places())
