"""Ours beside the paper's: spreads, order, and rounds saved, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from umbel.algorithms import FedAvg
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.networks import MLP
from umbel.papers.base import Cell, ColumnsPlot, Reproduction, number_of
from umbel.papers.comparing import (
    MethodPair,
    compared,
    judged,
    order,
    pairs,
    summary,
)
from umbel.papers.figures import charts
from umbel.papers.findings import ANY, Claim, Findings, Published
from umbel.papers.page import tables
from umbel.papers.saved_results import CellResult, MadeCell, SavedResults, curve
from umbel.result.run import Experiment

AGAINST = MethodPair("C = 8", "quick", "slow", kept=False)
FEDAVG = Experiment(ROTATED_DIGITS, MLP(), FedAvg(), rounds=100)


def reproduction(published: dict[str, Published], measure: str = "accuracy") -> Reproduction:
    numbers = {(row, ANY, measure): value for row, value in published.items()}
    return Reproduction(
        Findings("any", "Somebody", "Something", "A setting.", published=numbers),
        lambda _: [Cell(row, "C = 8", FEDAVG) for row in published],
        (measure,),
        (ColumnsPlot(measure, "clients", True, number_of), ColumnsPlot(measure, "clients")),
        baseline="base",
    )


def results(values: dict[str, tuple[float | None, ...]], measure: str = "accuracy") -> SavedResults:
    cells = tuple(CellResult(row, "C = 8", 100, {measure: v}, {}) for row, v in values.items())
    made = MadeCell("umbel reproduce any", {"umbel": "0", "torch": "0"}, "a machine", 60.0)
    seeds = tuple(range(max(map(len, values.values()), default=2)))
    return SavedResults("any", "full", seeds, made, cells)


def reversals(wanted: Reproduction, results: SavedResults, measure: str) -> Iterator[MethodPair]:
    return (pair for pair in pairs(wanted, results, measure) if pair.kept is False)


def test_numbers_agree_within_two_standard_errors_of_their_difference() -> None:
    # 91 and 92 have a sample deviation of sqrt(0.5), and a standard error of 0.5. The paper's are
    # 1 / sqrt(5) = 0.447 and 0.045: 2 hypot(0.5, 0.447) = 1.34, and 1.004.
    wanted = reproduction({"near": Published(90.2, 1.0), "far": Published(90.2, 0.1)})
    ours = results({"near": (91.0, 92.0), "far": (91.0, 92.0)})
    near, far = compared(wanted, ours, "accuracy")
    assert (near.mean, near.std, near.error) == (91.5, 0.5, 0.5)
    assert near.agrees
    assert far.agrees is False
    assert near.ours == "91.5 ± 0.5"
    assert (near.verdict, far.verdict) == ("+1.3 agrees", "+1.3")


@pytest.mark.parametrize("values", [(90.0,), (90.0, 90.0)])
def test_without_both_spreads_nothing_is_said_to_agree(values: tuple[float, ...]) -> None:
    printed = Published(90.0, None if len(values) > 1 else 1.0)
    (cell,) = compared(reproduction({"a": printed}), results({"a": values}), "accuracy")
    assert (cell.agrees, cell.near, cell.verdict) == (None, True, "+0.0")


def test_what_the_paper_rounds_off_is_not_held_against_us() -> None:
    wanted = reproduction({"a": Published(90.0, 0.0)})
    assert compared(wanted, results({"a": (90.04, 90.04)}), "accuracy")[0].agrees
    assert not compared(wanted, results({"a": (90.06, 90.06)}), "accuracy")[0].agrees


def test_a_number_of_seeds_that_is_not_the_table_s_is_told() -> None:
    wanted = reproduction({"one": Published(90.0), "two": Published(90.0)})
    ours = results({"one": (91.0,), "two": (91.0, 92.0)})
    assert [cell.ours for cell in compared(wanted, ours, "accuracy")] == [
        "91.0 (1 seed)",
        "91.5 ± 0.5",
    ]
    assert ours.seeds_told == "1 to 2 seeds"


def test_an_order_is_reversed_only_where_both_sides_are_clear() -> None:
    wanted = reproduction({"good": Published(90.0, 1.0), "bad": Published(80.0, 1.0)})
    assert not list(
        reversals(wanted, results({"good": (85.0, 85.0), "bad": (60.0, 60.0)}), "accuracy")
    )
    unclear = results({"good": (80.0, 84.0), "bad": (82.0, 86.0)})
    assert not list(reversals(wanted, unclear, "accuracy"))
    against = list(
        reversals(wanted, results({"good": (60.0, 60.0), "bad": (85.0, 85.0)}), "accuracy")
    )
    assert against == [MethodPair("C = 8", "good", "bad", kept=False)]
    assert [pair.kept for pair in pairs(wanted, unclear, "accuracy")] == [None]
    as_printed = results({"good": (85.0, 85.0), "bad": (60.0, 60.0)})
    assert [pair.kept for pair in pairs(wanted, as_printed, "accuracy")] == [True]
    assert summary(wanted, unclear) == (
        "1 of 2 numbers with spreads agree; pairs of rows: 0 in order, 0 reversed, 1 not apart"
    )
    assert "reversed, 1 not told apart" in order(wanted, unclear, "accuracy")


def test_fewer_rounds_come_first() -> None:
    wanted = reproduction({"quick": Published(1.0), "slow": Published(50.0)}, "optimal_round")
    ours = results({"quick": (90.0, 90.0), "slow": (2.0, 2.0)}, "optimal_round")
    assert list(reversals(wanted, ours, "optimal_round")) == [AGAINST]


def test_rows_are_told_apart_by_two_standard_errors_of_their_difference() -> None:
    # Errors of 3 / sqrt(5) and 4 / sqrt(5) make one of sqrt(5): 4.472 for two.
    ours = results({"good": (50.0, 50.0), "bad": (60.0, 60.0)})
    wanted = reproduction({"good": Published(90.0, 3.0), "bad": Published(85.5, 4.0)})
    assert list(reversals(wanted, ours, "accuracy"))
    nearer = reproduction({"good": Published(90.0, 3.0), "bad": Published(85.6, 4.0)})
    assert not list(reversals(nearer, ours, "accuracy"))


def test_every_reversal_is_said_a_column_after_another() -> None:
    wanted = reproduction({"a": Published(9.0), "b": Published(8.0), "c": Published(7.0)})
    ours = results({"a": (50.0,), "b": (60.0,), "c": (70.0,)})
    said = order(wanted, ours, "accuracy", around="*")
    assert said == (
        "0 of 3 pairs of rows in the paper's order, 3 reversed, 0 not told apart. "
        "In the paper, but not here: *C = 8*, a before b and c, b before c."
    )


def test_a_seed_that_never_gets_there_counts_with_all_its_rounds() -> None:
    ours = results({"some": (10.0, None), "none": (None, None)}, "optimal_round").cells
    assert ours[0].mean("optimal_round") == 55.0
    assert ours[1].mean("optimal_round") is None


def test_rounds_saved_are_of_the_baseline_s() -> None:
    wanted = reproduction({"method": Published(90.0), "base": Published(0.0)}, "saved_pure_round")
    ours = results({"method": (5.0, 15.0), "base": (80.0, 120.0)}, "pure_round")
    (saved,) = compared(wanted, ours, "saved_pure_round")
    assert (saved.row, saved.ours, saved.difference) == ("method", "90", 0.0)


def test_of_a_baseline_that_never_gets_there_more_than_its_rounds_are_saved() -> None:
    wanted = reproduction({"method": Published(95.0), "base": Published(0.0)}, "saved_pure_round")
    ours = results({"method": (5.0, 15.0), "base": (None, 100.0)}, "pure_round")
    (saved,) = compared(wanted, ours, "saved_pure_round")
    assert saved.ours == "90 or more"


@pytest.mark.parametrize(
    ("paper", "near", "verdict"),
    [(95.0, None, ""), (90.0, None, ""), (89.6, None, ""), (80.0, False, "+10")],
)
def test_a_lower_bound_is_judged_only_by_a_number_of_the_paper_that_contradicts_it(
    paper: float, near: bool | None, verdict: str
) -> None:
    wanted = reproduction({"method": Published(paper), "base": Published(0.0)}, "saved_pure_round")
    ours = results({"method": (5.0, 15.0), "base": (None, 100.0)}, "pure_round")
    (saved,) = compared(wanted, ours, "saved_pure_round")
    assert (saved.near, saved.verdict) == (near, verdict)


@pytest.mark.parametrize(
    ("paper", "near", "verdict"),
    [(77.5, None, ""), (400.0, None, ""), (10.0, False, "+67.50")],
)
def test_a_number_of_rounds_is_a_lower_bound_where_some_seed_never_gets_there(
    paper: float, near: bool | None, verdict: str
) -> None:
    wanted = reproduction({"a": Published(paper)}, "pure_round")
    (ours,) = compared(wanted, results({"a": (10.0, 100.0)}, "pure_round"), "pure_round")
    assert ours.ours == "55.00 ± 45.00"
    (ours,) = compared(wanted, results({"a": (55.0, None, None)}, "pure_round"), "pure_round")
    assert ours.ours == "85.00 ± 21.21 or more"
    (ours,) = compared(wanted, results({"a": (55.0, None)}, "pure_round"), "pure_round")
    assert (ours.near, ours.verdict) == (near, verdict)


def test_results_read_back_the_same(tmp_path: Path) -> None:
    ours = results({"a": (1.0, None)})
    ours.write(tmp_path / "any-full.json")
    assert SavedResults.read(tmp_path / "any-full.json") == ours


def test_a_curve_keeps_the_rounds_that_were_measured() -> None:
    kept = curve([[None, 1.0, None, 3.0, 5.0], [None, 3.0, 9.0, 3.0, 7.0]])
    assert kept.rounds == (2, 4, 5)
    assert kept.mean == (2.0, 3.0, 6.0)
    assert kept.std == (1.0, 0.0, 1.0)
    long = curve([[float(n) for n in range(1000)]])
    assert len(long.rounds) <= 101
    assert (long.rounds[0], long.rounds[-1]) == (1, 1000)


def test_a_curve_ends_where_the_first_run_does() -> None:
    kept = curve([[1.0, 2.0, 3.0], [3.0, 4.0]])
    assert (kept.rounds, kept.mean) == ((1, 2), (2.0, 3.0))


def test_figures_show_ours_and_the_paper_s() -> None:
    wanted = reproduction({"a": Published(2.0, 0.5), "b": Published(1.0, about=True)})
    by_number, by_name = charts(wanted, results({"a": (1.0, 3.0), "b": (4.0, 4.0)}))
    ours, paper, other = by_number.lines
    assert (ours.x, ours.y, ours.low, ours.high) == ((8.0,), (2.0,), (1.0,), (3.0,))
    assert (paper.name, paper.y, paper.published) == ("a", (2.0,), True)
    assert other.name == "b"  # what a paper only says in words is not drawn
    assert by_name.categories == ("C = 8",)
    assert by_name.lines[0].points


def test_one_seed_has_no_spread() -> None:
    ours = results({"a": (88.04,)})
    assert ours.cells[0].std("accuracy") is None
    (cell,) = compared(reproduction({"a": Published(90.0, 2.0)}), ours, "accuracy")
    assert (cell.ours, cell.agrees) == ("88.0", None)
    assert cell.error == 2.0  # the paper's deviation stands in


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"a": (90.0, 91.0), "b": (80.0, 81.0), "c": (70.0, 71.0)}, "holds"),
        ({"a": (90.0, 91.0), "b": (95.0, 96.0), "c": (70.0, 71.0)}, "holds in part"),
        ({"a": (60.0, 61.0), "b": (80.0, 81.0), "c": (70.0, 71.0)}, "does not hold"),
        ({"a": (60.0, 90.0), "b": (60.0, 91.0), "c": (59.0, 90.0)}, "not told apart"),
        ({"b": (80.0, 81.0)}, "not tested"),
    ],
)
def test_a_claim_is_judged_by_its_rows(
    values: dict[str, tuple[float | None, ...]], verdict: str
) -> None:
    wanted = reproduction({"a": Published(1.0), "b": Published(1.0), "c": Published(1.0)})
    claim = Claim.of("| a is first | any | accuracy | a > b; c | |")
    assert (claim.ahead, claim.behind, claim.columns) == (("a",), ("b", "c"), ())
    found = judged(claim, wanted, [results(values)])
    assert found.verdict == verdict
    other = Claim.of("| a is first | any | accuracy | a > b; c | C = 9 |")
    assert judged(other, wanted, [results(values)]).verdict == "not tested"


def test_a_claim_may_be_about_the_paper_s_own_numbers() -> None:
    wanted = reproduction({"a": Published(4.0)}, "rank")
    claim = Claim.of("| four groups | any | rank | a | |")
    assert judged(claim, wanted, [results({"a": (4.0, 4.0)}, "rank")]).verdict == "holds"
    assert judged(claim, wanted, [results({"a": (3.0, 3.0)}, "rank")]).verdict == "does not hold"


def test_a_goal_that_is_never_reached_takes_more_than_all_rounds() -> None:
    wanted = reproduction({"a": Published(5.0), "b": Published(50.0)}, "pure_round")
    claim = Claim.of("| a is sooner | any | pure_round | a > b | |")
    never = (None, None)
    quick = results({"a": (5.0, 7.0), "b": never}, "pure_round")
    assert judged(claim, wanted, [quick]).verdict == "holds"
    neither = results({"a": never, "b": never}, "pure_round")
    assert judged(claim, wanted, [neither]).verdict == "not told apart"
    # The largest results that tell something decide.
    assert judged(claim, wanted, [neither, quick]).results is quick
    assert judged(claim, wanted, [quick, neither]).results is quick
    once = results({"a": never, "b": never}, "pure_round")
    assert judged(claim, wanted, [neither, once]).results is neither


def test_nothing_of_a_smoke_run_is_compared_with_the_paper() -> None:
    wanted = reproduction({"good": Published(90.0), "bad": Published(60.0)})
    ours = replace(results({"good": (50.0,), "bad": (70.0,)}), size="smoke")
    printed = [part for part in tables(wanted, ours) if isinstance(part, str)]
    assert any(line.startswith("Smoke:") for line in printed)
    assert not any("not here" in line for line in printed)
    assert summary(wanted, ours) == "it runs"
