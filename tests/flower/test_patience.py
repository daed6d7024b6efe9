"""A SuperLink that fails for a moment is asked again, and no node gets a message twice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from tests.algorithms.test_contract import LOCAL
from tests.flower.grid import MemoryGrid
from tests.flower.small import SMALL, engine_of, grid_of
from umbel.algorithms import FedAvg
from umbel.data.sources import Sources
from umbel.flower.exchange import HELLO, WORK, patiently


def status(code: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://superlink/push")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(code))


PASSING = [status(500), ObjectPushError("1", 1, "2"), ConnectionError()]


@dataclass
class Clock:
    """Time that passes in sleep only."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("umbel.flower.exchange.time", clock)
    return clock


@dataclass
class Failing(MemoryGrid):
    """A SuperLink that stores messages and then fails, and whose nodes are not known at once."""

    error: Exception = field(default_factory=ConnectionError)
    looks: int = 0  # number of looks for nodes that fail
    pushes: set[str] = field(default_factory=set)  # kinds of messages that fail when first pushed

    def get_node_ids(self) -> list[int]:
        if self.looks:
            self.looks -= 1
            raise self.error
        return super().get_node_ids()

    def push_messages(self, messages: Any) -> list[str]:
        messages = list(messages)
        names = super().push_messages(messages)
        kind = messages[0].metadata.message_type
        if kind in self.pushes:
            self.pushes.remove(kind)
            raise self.error
        return names


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_each_node_works_once_where_a_push_fails_after_it_was_stored(
    error: Exception, tmp_path: Path, clock: Clock
) -> None:
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, evaluate_every=9)
    plain = grid_of(experiment, tmp_path)
    grid = Failing(plain.apps, plain.configs, error=error, pushes={HELLO, WORK}, looks=1)
    run = replace(experiment.open(Sources.default()), engine=engine_of(grid))
    _, record = next(iter(run.rounds(2)))
    assert not record.missing
    assert not grid.pushes
    assert (grid.asked.count(HELLO), grid.asked.count(WORK)) == (3, 3)
    assert sorted(clock.slept) == [0.25, 0.25, 0.5]  # pushes wait for half of the time limit


def test_an_error_that_stays_is_raised_as_it_is(clock: Clock) -> None:
    error = status(500)

    def fails() -> None:
        raise error

    with pytest.raises(httpx.HTTPStatusError) as raised:
        patiently(fails, 600.0)
    assert raised.value is error
    assert clock.now == 120
    assert clock.slept[:3] == [1, 2, 4]
    assert max(clock.slept) <= 20


class StoppedError(BaseException):
    """As Flower's, when a run was stopped."""


@pytest.mark.parametrize("error", [status(404), ValueError("Invalid"), StoppedError()])
def test_other_errors_are_raised_at_once(error: BaseException, clock: Clock) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(type(error)):
        patiently(fails, 60.0)
    assert not clock.slept
