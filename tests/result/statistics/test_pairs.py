"""Pairs of methods, corrected for being several, against values worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from umbel.experiment.library import find_experiment
from umbel.result.run import read
from umbel.result.statistics.contenders import ComparedMethod
from umbel.result.statistics.data import Data
from umbel.result.statistics.measures import ACCURACY
from umbel.result.statistics.pairs import holm, pairs, standing

SCENARIO = read(find_experiment("fedavg-digits")).scenario


def contender(name: str, scores: Sequence[float], seeds: int = 5) -> ComparedMethod:
    by_seed = {
        seed: {
            f"site {n}": score + 0.01 * ((seed * 7 + n * 3) % 5) for n, score in enumerate(scores)
        }
        for seed in range(seeds)
    }
    return ComparedMethod(
        name=name,
        baseline="",
        quality=sum(scores) / len(scores),
        data=dict.fromkeys(range(seeds), Data(SCENARIO)),
        scores=by_seed,
    )


def test_p_values_are_corrected_as_holm_does() -> None:
    # In order 0.001, 0.01, 0.02, 0.04: times 4, 3, 2 and 1, and never below one before.
    assert holm([0.01, 0.04, 0.001, 0.02]) == pytest.approx([0.03, 0.04, 0.004, 0.04])
    # 0.02 * 3, then max(0.06, 0.025 * 2), then max(0.06, 0.03).
    assert holm([0.02, 0.025, 0.03]) == pytest.approx([0.06, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


BASE = (0.5, 0.6, 0.7, 0.8, 0.5, 0.6, 0.7, 0.8)
SLIGHTLY = tuple(score + gain for score, gain in zip(BASE, (0.05, -0.03, 0.06, 0) * 2, strict=True))
MUCH = tuple(score + gain for score, gain in zip(BASE, (0.2, 0.22, 0.18, 0.21) * 2, strict=True))


def test_there_is_a_pair_of_any_two_methods_the_better_one_first() -> None:
    methods = [contender("a", BASE), contender("b", SLIGHTLY), contender("c", MUCH)]
    found = pairs(methods, ACCURACY)
    assert [(pair.better.name, pair.other.name) for pair in found] == [
        ("c", "b"),
        ("c", "a"),
        ("b", "a"),
    ]
    assert {pair.of for pair in found} == {3}
    for pair in found:
        assert pair.lead is not None
        assert pair.p_value >= pair.lead.p_value
    assert [pair.sure for pair in found] == [True, True, False]
    assert [pair.other.name for pair in standing(methods, ACCURACY).others] == ["b", "a"]


def test_pairs_that_cannot_be_judged_are_not_corrected_for() -> None:
    few = [contender("a", BASE[:1], 2), contender("b", MUCH[:1], 2), contender("c", MUCH)]
    assert {pair.of for pair in pairs(few, ACCURACY)} == {1}


def test_a_method_is_compared_with_its_control_whichever_is_better() -> None:
    worse = [contender("b", BASE), contender("b (random clusters)", MUCH)]
    better = [contender("a (random clusters)", BASE), contender("a", MUCH)]
    found = standing([worse[0], better[0], worse[1], better[1]], ACCURACY).controlled
    assert list(found) == ["a", "b"]
    gained, lost = (found[name].lead for name in "ab")
    assert gained is not None
    assert lost is not None
    assert gained.mean == pytest.approx(-lost.mean)
    assert gained.low == pytest.approx(-lost.high)
    assert found["b"].better.name == "b"
    assert found["a"].sure
    assert not found["b"].sure


def test_among_many_methods_only_the_leader_and_controls_are_compared_and_all_pairs_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("a", "b", "b (random clusters)", "c", "d")
    noise = np.random.default_rng(0).normal(scale=0.02, size=(5, 8))
    methods = [contender(name, tuple(BASE + row)) for name, row in zip(names, noise, strict=True)]
    methods.append(contender("best", MUCH))
    whole = standing(methods, ACCURACY)
    assert (len(whole.pairs), whole.left_out) == (15, 0)
    monkeypatch.setattr("umbel.result.statistics.pairs.MOST_METHODS", 5)
    found = standing(methods, ACCURACY)
    assert [pair.other.name for pair in found.others] == [*reversed(names)]
    assert list(found.controlled) == ["b"]
    assert (len(found.pairs), found.left_out, found.pairs[0].of) == (6, 9, 15)
    every = {(pair.better.name, pair.other.name): pair for pair in whole.pairs}
    for pair in found.pairs:
        same = every[pair.better.name, pair.other.name]
        assert pair.lead == same.lead
        assert pair.p_value >= same.p_value
