"""Who takes part: shares, weights, availability by round, and rules of one's own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike

import umbel
from tests.federations import blobs, mlp
from tests.flower.small import SMALL, grid_of, last_state
from umbel.algorithms import FedAvg, Sattler
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.experiment.toml_file import read, write
from umbel.result.run import Run, resume
from umbel.run.participation import Available, Participation, Uniform, Weighted
from umbel.testing import assert_same_state

FEDERATION = replace(blobs((5, 17, 9, 26)), names=("a", "b", "c", "d"))
NIGHT_AND_DAY = Available(rounds=(("a", "c"), ("d",)))


def run_with(participation: Any, **more: Any) -> Run:
    method = FedAvg(LocalTraining(epochs=1, batch_size=8))
    return Run(method, FEDERATION, mlp(), seed=3, participation=participation, **more)


def cohorts(participation: Any, rounds: int) -> list[list[int]]:
    run = run_with(participation)
    return [run.context(number, rounds).cohort.tolist() for number in range(rounds)]


def test_clients_are_drawn_in_proportion_to_their_examples_or_weights() -> None:
    drawn = Counter(client for (client,) in cohorts(Weighted(share=0.25), 2000))
    assert [drawn[n] / 2000 for n in range(4)] == pytest.approx(
        [size / 57 for size in (5, 17, 9, 26)], abs=0.03
    )
    assert {tuple(c) for c in cohorts(Weighted(share=0.5, weights=(0, 1, 0, 5)), 9)} == {(1, 3)}
    assert cohorts(Weighted(), 1) == [[0, 1, 2, 3]]


def test_only_available_clients_are_asked_in_turn() -> None:
    assert cohorts(NIGHT_AND_DAY, 5) == [[0, 2], [3], [0, 2], [3], [0, 2]]
    half = cohorts(replace(NIGHT_AND_DAY, share=0.5), 40)
    assert {tuple(cohort) for cohort in half[::2]} == {(0,), (2,)}
    assert {tuple(cohort) for cohort in half[1::2]} == {(3,)}


def test_a_share_is_drawn_as_ever() -> None:
    rng = np.random.default_rng(umbel.seeds.seed_of(3, umbel.seeds.Stream.COHORT, 7))
    expected = np.sort(rng.choice(4, 2, replace=False)).tolist()
    assert cohorts(0.5, 8)[7] == cohorts(Uniform(share=0.5), 8)[7] == expected


@dataclass(frozen=True, kw_only=True)
class OneByOne(Participation):
    """The clients take turns."""

    first: int = 0

    def cohort(self, number: int, federation: Federation, rng: np.random.Generator) -> ArrayLike:  # noqa: ARG002
        return [(self.first + number) % federation.num_clients]


def test_a_rule_of_ones_own_asks_whom_it_returns() -> None:
    assert cohorts(OneByOne(first=2), 4) == [[2], [3], [0], [1]]
    for wrong in ([], [0, 0], [4], [-1], [0.5], [[1]]):

        @dataclass(frozen=True, kw_only=True)
        class Wrong(Participation):
            def cohort(self, *_: Any) -> Any:
                return wrong  # noqa: B023

        with pytest.raises(UsageError, match=r"what Wrong returns for round 0: .*0 to 3"):
            cohorts(Wrong(), 1)


@pytest.mark.parametrize(
    "participation",
    [Weighted(share=0.5, weights=(1, 2, 3, 4)), NIGHT_AND_DAY, OneByOne(first=1)],
    ids=str,
)
def test_it_is_kept_in_a_file_and_a_resumed_run_asks_the_same_clients(
    participation: Participation, tmp_path: Path
) -> None:
    whole = [(state, record.untimed()) for state, record in run_with(participation).rounds(5)]
    for _, record in run_with(participation).rounds(5, folder=tmp_path):
        if record.round == 1:
            break
    assert read(tmp_path / "experiment.toml").participation == participation
    with pytest.raises(UsageError, match="participation"):
        resume(tmp_path, run_with(0.5))
    result = resume(tmp_path, run_with(participation))
    assert_same_state(result.state, whole[-1][0])
    assert [record.untimed() for record in result.records] == [record for _, record in whole]


def test_a_table_in_toml_takes_the_place_of_the_number(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = write(SMALL)
    file.write_text(text)
    weighted = read(file, ["participation.name=weighted", "participation.share=0.5"])
    assert weighted.participation == Weighted(share=0.5)
    assert read(file, ["participation=0.5"]).participation == 0.5
    asked = read(file, ['participation={name="available", rounds=[["0"], ["1", "2"]]}'])
    assert asked.participation == Available(rounds=(("0",), ("1", "2")))
    for setting, message in {
        "participation.name=wieghted": "did you mean weighted",
        "participation=all": "participation: 'all' is not a number",
        'participation={name="available", rounds=[["0"], []]}': "rounds: .*none of them empty",
        "participation.share=0.5": "participation.name: missing; known: uniform, weighted, avail",
        "partcipation=0.5": "did you mean participation",
    }.items():
        with pytest.raises(UsageError, match=message):
            read(file, [setting])


@pytest.mark.parametrize(
    ("participation", "message"),
    [
        (
            Weighted(weights=(1, 2)),
            "weights: '2 numbers' is not a number for each of the 4",
        ),
        (Weighted(weights=(1, 0, 0, 0)), "weights: '1 above 0' is not 4 or more above 0"),
        (Available(rounds=(("a",), ("bb",))), r"rounds\[1\]: no client 'bb'; did you mean b"),
    ],
)
def test_what_does_not_fit_the_clients_is_refused(participation: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cohorts(participation, 2)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(UsageError, match="share: 0 is not in"):
        Weighted(share=0)
    with pytest.raises(UsageError, match=r"weights: -1\.0 is not 0 or more"):
        Weighted(weights=(1, -1))
    with pytest.raises(UsageError, match=r"weights: \(\) is not a list with privacy"):
        run_with(Weighted(), privacy=umbel.Privacy(clip=1.0))
    with pytest.raises(UsageError, match=r"participation: 0\.0 is not 1: all clients take part"):
        Run(Sattler(), FEDERATION, mlp(), participation=NIGHT_AND_DAY)
    Run(Sattler(), FEDERATION, mlp(), participation=Weighted())


def test_newcomers_need_not_be_those_that_settings_name() -> None:
    run = run_with(NIGHT_AND_DAY)
    *_, (state, _) = run.rounds(2)
    others = replace(run, federation=blobs((9, 9)))
    assert others.assign(state, 2).clients.tolist() == [0, 1]
    assert "participation Available" in repr(run)


def test_an_evaluation_is_kept_for_the_next_round_only_if_that_asks_everyone() -> None:
    plain = torch.stack([s.models for s, _ in run_with(1.0).rounds(2)])
    weighted = torch.stack([s.models for s, _ in run_with(Weighted()).rounds(2)])
    assert torch.equal(plain, weighted)
    assert run_with(Weighted()).remembering() is not (other := run_with(NIGHT_AND_DAY)).clients
    assert other.remembering() is other.clients


def test_nodes_of_flower_are_asked_by_their_names_and_numbers(tmp_path: Path) -> None:
    for participation in (Weighted(share=0.5), Available(rounds=(("0", "3"), ("5",)))):
        experiment = replace(SMALL, participation=participation)
        found = last_state(experiment, grid_of(experiment, tmp_path))
        assert_same_state(found, last_state(experiment, None), 1e-4)


@dataclass(frozen=True, kw_only=True)
class OfWard(Participation):
    """The clients of one ward."""

    def cohort(self, number: int, federation: Federation, rng: np.random.Generator) -> ArrayLike:  # noqa: ARG002
        return [n for n, ward in enumerate(federation.attributes["ward"]) if ward == "x"]


def test_rules_of_ones_own_know_the_attributes_of_those_who_are_there() -> None:
    wards = replace(FEDERATION, attributes={"ward": ("y", "x", "y", "x")})
    membership = umbel.Membership((umbel.Event(1, leaves=("b",)),))
    run = replace(run_with(OfWard()), federation=wards, membership=membership)
    assert [run.context(number, 2).cohort.tolist() for number in range(2)] == [[1, 3], [3]]
