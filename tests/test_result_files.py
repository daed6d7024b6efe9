"""Files of benchmarks: looked at before anything is timed, added to, and shown as tables."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import __main__ as everything
from benchmarks import report


def test_shares_are_of_the_best_product_of_all_commands_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "results.json"

    def made(name: str, peak: float) -> None:
        about: everything.Row = {"machine": "mine", "device": "cpu", "peak_gflops": peak}
        shares = {"share_of_peak": 0.5, "plain_share_of_peak": 0.2, "peak_gflops": peak}
        numbers = dict.fromkeys(("seconds", "low", "high", "plain_seconds", "plain_low"), 1.0)
        more = dict.fromkeys(("plain_high", "ratio", "samples_per_second"), 1.0)
        none = dict.fromkeys(("goal", "memory_mb", "plain_memory_mb"))
        row = {"name": name, "what": "", "precision": "fp32", **numbers, **more, **none, **shares}
        everything.write(file, about, [row], [])

    made("W1", 80.0)
    made("W2", 100.0)
    made("W3", 50.0)
    text = report.markdown(json.loads(file.read_text()))
    assert "best matrix product reaches 100 GFLOP/s" in text
    shares = [
        line.rstrip(" |").split(" | ")[5:7]
        for line in text.splitlines()
        if line.startswith("| **W")
    ]
    assert shares == [["40%", "16%"], ["50%", "20%"], ["25%", "10%"]]
