"""What a round over Flower waits for is told from what processes wrote down."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs umbel[flower]")

from benchmarks.flower_times import PARTS, note, parts


def test_of_each_request_the_slowest_nodes_times_count(tmp_path: Path) -> None:
    file = tmp_path / "times.jsonl"
    for begin in (0.0, 100.0, 300.0):  # a greeting, a round, an evaluation
        for node, delay in (("near", 1.0), ("far", 2.0)):
            name = f"{node}-{begin}"
            note(file, message=name, asked=begin, pushed=begin + 3)
            at = begin + 10
            times = {"started": at, "fetched": at + delay, "called": at + 3 * delay}
            note(file, message=name, **times, done=at + 10 * delay)
            note(file, message=name, pulled=at + 50 * delay)
    expected = [3, 7, 2, 4, 14, 80, 90]
    assert parts(file) == dict(zip(PARTS, map(pytest.approx, expected), strict=True))
