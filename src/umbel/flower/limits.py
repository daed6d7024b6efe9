"""Limits on the work that a node does for a server, checked before the work begins."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from math import prod
from types import FrameType
from typing import Any, ClassVar, TypeVar, cast

from umbel.checks import UsageError, check, shown
from umbel.client.work import DURING
from umbel.data.federation import Federation
from umbel.engines import EngineSettings
from umbel.engines.replies.validation import promises
from umbel.engines.storage import chosen, sizes_asked
from umbel.flow import Request
from umbel.flower.errors import RefusedError
from umbel.settings import SCALARS, Settings

N = TypeVar("N", int, float)


def number_in(
    config: Mapping[str, object], name: str, kind: type[N], default: N | None = None
) -> N:
    """Read a number, which may be a text; 1e6 is a whole number. Raises `UsageError` for others."""
    value = config.get(name, default)
    text = str(value)
    with suppress(ValueError):
        return kind(text)
    with suppress(ValueError):
        if float(text).is_integer():
            return kind(float(text))
    raise UsageError(f"{name}: {shown(value)} is not {SCALARS[kind]}")


def truth_in(config: Mapping[str, object], name: str, default: bool) -> bool:
    """Read a truth value. Raises `UsageError` for anything else."""
    value = config.get(name, default)
    said = str(value).lower()
    check(said in ("true", "false"), name, value, "true or false")
    return said == "true"


def settings_in(config: Mapping[str, object], kind: type[Settings]) -> dict[str, Any]:
    """Return the settings of a dataclass, in which `time_limit` is the configured `time-limit`."""
    found: dict[str, Any] = {}
    for each in fields(cast("Any", kind)):
        name, default = each.name.replace("_", "-"), each.default
        if isinstance(default, bool):
            found[each.name] = truth_in(config, name, default)
        elif isinstance(default, str):
            found[each.name] = str(config.get(name, default))
        else:
            found[each.name] = number_in(config, name, type(default), default)
    return found


OF_ENGINES = {
    "engine-memory-mb": float,
    "engine-workers": int,
    "engine-micro-batch-size": int,
    "engine-device": str,
}
"""Settings of a node for the engine on its own machine, in place of the experiment's."""

LONGEST_SECONDS = 10**8
"""Largest number of seconds that the alarms of every system can count: three years."""


def engine_here(config: Mapping[str, object], engine: EngineSettings) -> EngineSettings:
    """Return the engine settings of a node: the experiment's, with the node's own changes.

    Raises `UsageError` for a setting that is not possible.
    """
    given: dict[str, Any] = {
        name: str(config[name]) if kind is str else number_in(config, name, kind)
        for name, kind in OF_ENGINES.items()
        if name in config
    }
    changed = {name.removeprefix("engine-").replace("-", "_"): v for name, v in given.items()}
    try:
        return replace(engine, **changed)
    except UsageError as error:
        raise UsageError(f"engine-{str(error).replace('_', '-', 1)}") from None


class _TimeIsUpError(BaseException):
    """Raised in work whose time is over. A site's own metric may suppress any `Exception`."""


@dataclass(frozen=True)
class NodeLimits(Settings):
    """Bounds on one request to all its clients together, from settings such as `max-steps`."""

    may_be_infinite: ClassVar = frozenset({"max_seconds"})

    max_bytes: int = 2**32  # size of the tensors received, and of those sent
    max_steps: int = 10**6  # gradients on a mini-batch, times the models that are trained
    max_examples: int = 10**8  # examples in all mini-batches
    max_seconds: float = 3600.0
    max_requests: int = 100  # to one client in a round, for each start of a method with several
    min_batch: int = 1  # examples of a client in a step of training

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check(value > 0, name.replace("_", "-"), value, "more than 0")

    @classmethod
    def of(cls, config: Mapping[str, object]) -> NodeLimits:
        """Read limits from the settings of a node. Raises `UsageError` for anything but numbers."""
        return cls(**settings_in(config, cls))

    def check(self, request: Request, federation: Federation, exact: bool = True) -> None:
        """Raise `RefusedError` for a request that would take too much.

        Without `exact`, the message leaves out numbers that reveal a client's number of examples.
        """
        split = chosen(
            request.work,
            train=federation.train,
            test=federation.test,
            validation=federation.validation,
        )
        footprint, batching = request.work.footprint(request.shapes), request.work.batching
        # Bytes: 8 for each value of a reply, of an intermediate result, or of a model to be made.
        replies = sum(8 * prod(promise.shape) for promise in promises(request).values())
        inside = 8 * footprint.values * prod(federation.input_shape)
        # A small tensor may request many models, such as the shares of `PersonalEvaluation`.
        models = 8 * footprint.models * prod(request.shapes.get("theta", ())[-1:])
        most = max(replies * len(request.clients), inside, models)
        self._check("bytes", most, self.max_bytes)
        if batching.shape is not None:
            sizes = [max(1, size) for size in sizes_asked(split, request).tolist()]
            plans = [batching.shape(size) for size in sizes]
            passes = batching.passes * max(1, footprint.models)
            steps = passes * sum(steps for steps, _ in plans)
            self._check("steps", steps, self.max_steps, exact)
            self._check("examples", sum(map(prod, plans)), self.max_examples, exact)

    def refused(
        self, request: Request, federation: Federation, exact: bool = True
    ) -> dict[int, str]:
        """Return the clients that have too few examples for this work, with the reasons.

        A step on few examples reveals them. Without `exact`, reasons leave out numbers of examples.
        """
        found, work = dict[int, str](), request.work
        if work.split != "train":
            return found
        sizes = sizes_asked(federation.train, request).tolist()
        for client, size in zip(request.clients.tolist(), sizes, strict=True):
            if not size and DURING in request.each:
                found[client] = "has no examples of these steps"
                continue
            size, batching = max(1, size), work.batching
            steps, width = batching.size(size)
            # The smallest mini-batch of an epoch: its last one may hold few examples.
            width = width if batching.fewest is None else batching.fewest(size)
            fewest = width if steps else size
            if fewest < self.min_batch:
                said = f"{fewest} examples" if exact else "examples"
                least = f"the {self.min_batch} that this node asks for (its setting min-batch)"
                found[client] = f"a step on {said}, fewer than {least}"
        return found

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """Interrupt the work in the `with` block when the time is over, and raise `RefusedError`.

        Only a main thread, in which Flower runs apps on real nodes, can be interrupted, and only on
        a system that has alarms; elsewhere, and beyond `LONGEST_SECONDS`, time is not bounded.
        """
        main = threading.current_thread() is threading.main_thread()
        if not main or not hasattr(signal, "setitimer") or self.max_seconds > LONGEST_SECONDS:
            yield
            return

        def over(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            raise _TimeIsUpError

        before = signal.signal(signal.SIGALRM, over)
        try:
            signal.setitimer(signal.ITIMER_REAL, self.max_seconds)
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except _TimeIsUpError:
            why = f"not done within the {self.max_seconds:g} seconds allowed here"
            raise RefusedError(why) from None
        finally:
            signal.signal(signal.SIGALRM, before)

    @staticmethod
    def _check(what: str, found: int, most: int, exact: bool = True) -> None:
        if found > most:
            said = f"{found} {what}, more" if exact and found < 10**18 else f"more {what}"
            raise RefusedError(
                f"the work takes {said} than the {most} that this node allows "
                f"(its setting max-{what})"
            )
