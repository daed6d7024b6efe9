"""At level INFO a run tells what its rounds did."""

from __future__ import annotations

import logging

import pytest
import torch

from tests.shell import Shell
from umbel import FLACC, Faults, Limits, Net, Record, Run, State, scenario
from umbel.networks import MLP
from umbel.run.story import told


def net() -> Net:
    return Net(lambda: MLP((8,)).build((1, 8, 8), 10))


def test_a_run_tells_of_its_cohorts_replies_and_clusters(caplog: pytest.LogCaptureFixture) -> None:
    federation = scenario("rotated-digits", clients=8)
    given = {"faults": Faults(drop=0.5), "limits": Limits(quorum=0.0), "participation": 0.5}
    run = Run(FLACC(n_merge=1), federation, net(), **given)  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO, "umbel"):
        records = [record for _, record in run.rounds(6)]
    lines = [line for line in caplog.messages if line.startswith("round ")]
    assert len(lines) == 6
    for line, record in zip(lines, records, strict=True):
        replies = 4 - len(record.missing)
        said = "1 reply" if replies == 1 else f"{replies} replies"
        silent = f", {len(record.missing)} silent" if record.missing else ""
        assert line.startswith(f"round {record.round}: asked 4 of 8 clients; {said}{silent}; ")


@pytest.mark.parametrize(
    ("models", "labels", "said"),
    [
        (4, [0, 1, 2], "2 models became 4"),
        (1, [0, 0, 0], "2 models merged to 1"),
        (2, [0, 1, 1], "2 models; 1 client moved to another cluster"),
        (2, [0, 1, 0], "2 models"),
    ],
)
def test_clusters_that_are_born_merged_or_left_are_told(
    models: int, labels: list[int], said: str
) -> None:
    before = State(torch.zeros(2, 3), torch.tensor([0, 1, 0]))
    after = State(torch.zeros(models, 3), torch.tensor(labels))
    line = told(Record(7), before, after, asked=2)
    assert line == f"round 7: asked 2 of 3 clients; 2 replies; {said}"


def test_v_tells_it_on_the_command_line_with_the_checkpoints(
    umbel: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    umbel("run", "fedavg-digits", "-v", "--set", "rounds=2", "--set", "scenario.clients=4")
    assert "round 1: asked 2 of 4 clients; 2 replies; 1 model" in caplog.messages
    assert "runs/fedavg-digits-seed0: checkpoint after 2 rounds" in caplog.messages
