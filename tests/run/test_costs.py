"""What rounds cost, in a run's records and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import umbel
from tests.federations import SIZES, blobs, mlp
from umbel.algorithms import CFLGP, FLACC, FLHC, IFCA, LCFL, FedAvg, Joint, LocalOnly, Sattler
from umbel.client.work import LocalTraining

LOCAL = LocalTraining(epochs=2, batch_size=4)
EXAMPLES = sum(SIZES)


def records_of(algorithm: Any, rounds: int = 4) -> list[umbel.Record]:
    run = umbel.Run(algorithm, blobs(), mlp(), evaluate_every=rounds)
    return [record for _, record in run.rounds(rounds)]


@pytest.mark.parametrize(
    ("algorithm", "gradients", "losses"),
    [
        (FedAvg(local=LOCAL), 2 * EXAMPLES, 0),
        (LocalOnly(local=LOCAL), 2 * EXAMPLES, 0),
        (IFCA(num_clusters=3, local=LOCAL), 2 * EXAMPLES, 3 * EXAMPLES),
        (
            Joint(num_clusters=2, local=LOCAL),
            2 * EXAMPLES + 2 * sum(min(4, size) for size in SIZES),
            0,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_round_costs_the_gradients_and_losses_that_the_papers_count(
    algorithm: Any, gradients: int, losses: int
) -> None:
    for record in records_of(algorithm):
        assert (record.gradient_evaluations, record.loss_evaluations) == (gradients, losses)


def test_rounds_in_which_clients_judge_each_other_cost_losses() -> None:
    first, second, *_ = records_of(LCFL(num_clusters=2, local=LOCAL))
    assert first.loss_evaluations == len(SIZES) * EXAMPLES
    assert second.loss_evaluations == 0


@pytest.mark.parametrize(
    ("algorithm", "rounds"),
    [
        (FLACC(local=LOCAL), {0, 1, 2, 3}),
        (CFLGP(num_clusters=2, period=2, patience=9, local=LOCAL), {1, 3}),
        (LCFL(num_clusters=2, local=LOCAL), {0}),
        (FLHC(num_clusters=2, cluster_round=2, local=LOCAL), {2}),
        (Sattler(from_round=3, local=LOCAL), {3}),
        (FedAvg(local=LOCAL), set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_records_tell_the_time_in_which_clusters_are_found(
    algorithm: Any, rounds: set[int]
) -> None:
    records = records_of(algorithm)
    times = {record.round: record.clustering_seconds or 0 for record in records}
    assert {number for number, seconds in times.items() if seconds > 0} == rounds
    assert all(times[record.round] + record.client_seconds <= record.seconds for record in records)


def test_tables_have_what_a_run_cost_each_client(tmp_path: Path) -> None:
    run = umbel.Run(IFCA(num_clusters=2, local=LOCAL), blobs(), mlp())
    run.save(tmp_path / "run", rounds=3)
    row = umbel.results(tmp_path).runs.to_pandas().iloc[0]
    assert row["gradient_evaluations"] == pytest.approx(3 * 2 * EXAMPLES / len(SIZES))
    assert row["loss_evaluations"] == pytest.approx(3 * 2 * EXAMPLES / len(SIZES))
