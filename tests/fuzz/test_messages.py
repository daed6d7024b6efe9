"""Broken messages, some of them drawn: none escapes. `python -m tests.fuzz messages` does more."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.messages import Figures, Side, listening, sides


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Side]:
    return sides(tmp_path_factory.mktemp("sides"))


def test_valid_messages_are_used(everything: list[Side]) -> None:
    for side in everything:
        for number, content in enumerate(side.valid):
            assert side.read(number, content) == "used", (side.name, number)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_no_changed_message_escapes(everything: list[Side], seed: int) -> None:
    figures, drawn = Figures(), random.Random(seed)
    with listening(figures):
        for _ in range(20):
            side = drawn.choice(everything)
            figures.one(side, drawn.randrange(len(side.valid)), drawn)
    assert not figures.escapes
