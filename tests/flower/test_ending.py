"""Why a run ended is the last line on its stream, below what Flower writes about it."""

from __future__ import annotations

from typing import NoReturn

import httpx
import pytest
from flwr.supercore.exit.exit_handler import trigger_exit_handlers

from umbel.checks import UsageError
from umbel.flower.server import ENDED, said_last


def status(code: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://superlink/push")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(code))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UsageError("clients: 0 is not at least 5"), "clients: 0 is not at least 5"),
        (KeyError("x"), "KeyError: 'x'"),
        (status(401), ENDED),
    ],
)
def test_the_reason_is_said_again_when_flower_ends_the_process(
    error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> NoReturn:
        raise error

    with pytest.raises(type(error)) as raised:
        said_last(fail)
    assert raised.value is error
    told = [frame.name for frame in raised.traceback]
    assert ("fail" in told) == (not isinstance(error, UsageError))  # where it was is for no user
    assert not caplog.messages
    trigger_exit_handlers(run_before_force_exit=False)
    assert caplog.messages == [f"umbel: {said}"]


def test_a_run_that_ends_well_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    said_last(lambda: None)
    trigger_exit_handlers(run_before_force_exit=False)
    assert not caplog.messages
