"""The answer follows from how the contenders did, the simpler way first where they are alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import umbel
from umbel.advice.gains import gain, gain_over_examples
from umbel.advice.structure import Structure
from umbel.advice.trial import Contender, Kind, Standing
from umbel.advice.verdict import decide

CLIENTS = 20
NOISE = np.random.default_rng(0).normal(0, 0.01, CLIENTS)


def standing(kind: Kind, loss: float, clusters: int = 1, tuned: bool = False) -> Standing:
    """A contender whose clients have about this loss."""
    labels = np.arange(CLIENTS) % clusters
    algorithm: umbel.Algorithm[Any] = umbel.FedAvg()
    if kind == "clusters":
        algorithm = umbel.FixedClusters(clusters=tuple(labels.tolist()))
    name = f"{clusters} clusters" if kind == "clusters" else kind
    contender = Contender(name=name, kind=kind, algorithm=algorithm)
    if tuned:
        contender = replace(contender, name=f"{name}, fine-tuned", base=contender)
    return Standing(
        contender=contender,
        rounds=10,
        best_round=10,
        loss=loss + NOISE * (1 + loss),
        accuracy=np.full(CLIENTS, np.nan),
        clusters=labels,
        trained=np.full(CLIENTS, True),
        refused=np.full(CLIENTS, False),
        course=((2, 2.0), (10, loss)),
    )


def structure(groups: int) -> Structure:
    labels = tuple(np.arange(CLIENTS) % (k + 1) for k in range(4))
    return Structure(differences=(), groupings=labels, num_groups=groups)


def answered(groups: int, *standings: Standing) -> tuple[str, int, bool]:
    verdict = decide(standings, structure(groups))
    return verdict.answer, verdict.num_clusters, verdict.tuned


def test_one_model_where_nothing_is_surely_better() -> None:
    one, alone = standing("one", 0.5), standing("local", 0.6)
    assert answered(1, one, alone) == ("one model", 1, False)


def test_clusters_that_are_surely_better() -> None:
    one, alone = standing("one", 0.5), standing("local", 0.6)
    found = standing("clusters", 0.3, 3)
    assert answered(3, one, alone, found) == ("clusters", 3, False)


def test_the_number_that_examples_show_unless_another_is_surely_better() -> None:
    ways = [standing("one", 0.5), standing("local", 0.6)]
    more = [standing("clusters", 0.30, 2), standing("clusters", 0.30, 3)]
    assert answered(2, *ways, *more)[1] == 2
    more = [standing("clusters", 0.30, 2), standing("clusters", 0.20, 3)]
    assert answered(2, *ways, *more)[1] == 3


def test_the_best_clusters_where_those_that_examples_show_do_not_pay() -> None:
    ways = [standing("one", 0.5), standing("local", 0.6)]
    more = [standing("clusters", 0.30, 2), standing("clusters", 0.55, 4)]
    assert answered(4, *ways, *more) == ("clusters", 2, False)


def test_clusters_that_are_empty_are_not_counted() -> None:
    ways, found = [standing("one", 0.5), standing("local", 0.6)], standing("clusters", 0.3, 3)
    gap = replace(found, clusters=np.where(found.clusters == 1, 2, found.clusters))
    assert answered(3, *ways, gap) == ("clusters", 2, False)
    whole = replace(found, clusters=np.ones(CLIENTS, dtype=np.int64))
    tuned = replace(whole, contender=standing("clusters", 0.3, 3, tuned=True).contender)
    assert answered(3, *ways, whole, tuned) == ("one model", 1, False)


def test_training_alone_where_it_is_surely_best() -> None:
    ways = standing("one", 0.5), standing("local", 0.2), standing("clusters", 0.4, 2)
    assert answered(2, *ways)[0] == "train alone"


def test_fine_tuning_only_where_it_adds_something() -> None:
    ways = [standing("one", 0.5), standing("local", 0.6)]
    assert answered(1, *ways, standing("one", 0.3, tuned=True)) == ("one model", 1, True)
    assert answered(1, *ways, standing("one", 0.499, tuned=True)) == ("one model", 1, False)


def test_fine_tuning_only_where_it_is_better_than_training_on_together() -> None:
    ways = [standing("one", 0.5), standing("local", 0.6)]
    tuned, further = standing("one", 0.3, tuned=True), standing("one", 0.3)
    assert answered(1, *ways, replace(tuned, rivals=(further, further))) == ("one model", 1, False)
    found, further = standing("clusters", 0.2, 3), standing("clusters", 0.1, 3)
    tuned = replace(standing("clusters", 0.1, 3, tuned=True), rivals=(ways[0], further))
    assert answered(3, *ways, found, tuned) == ("clusters", 3, False)
    tuned = replace(tuned, rivals=(ways[0], found))
    assert answered(3, *ways, found, tuned) == ("clusters", 3, True)


def few(kind: Kind, loss: float, examples: int, clients: int = 3) -> Standing:
    """A contender of which the losses of few clients are known, with so many examples each."""
    losses = np.where(np.arange(CLIENTS) < clients, loss, np.nan)
    noise = np.linspace(-0.3, 0.3, examples) * (2 if kind == "one" else 1)
    known = tuple(loss + noise if n < clients else np.zeros(0) for n in range(CLIENTS))
    return replace(standing(kind, loss), loss=losses, examples=known)


def test_few_clients_are_judged_by_their_examples() -> None:
    assert answered(1, few("one", 0.5, 40), few("local", 0.3, 40))[0] == "train alone"
    assert answered(1, few("one", 0.5, 40), few("local", 0.55, 40))[0] == "one model"
    assert answered(1, few("one", 0.5, 3), few("local", 0.3, 3))[0] == "too few examples to tell"
    assert answered(1, few("one", 0.5, 1), few("local", 0.3, 1))[0] == "too few examples to tell"


def test_a_gain_over_examples_is_a_mean_over_clients_with_its_interval() -> None:
    old = [np.array([1.0, 2.0, 3.0]), np.array([5.0, 6.0]), np.zeros(0)]
    new = [np.array([0.0, 1.5, 1.5]), np.array([4.0, 4.0]), np.zeros(0)]
    found = gain_over_examples(new, old)
    assert found.mean == pytest.approx((1.0 + 1.5) / 2)
    # By hand: squares 0.25 / 3 and 0.5 / 2, of 2 and 1 degrees of freedom: 1.684 in all.
    error = (0.25 / 3 + 0.5 / 2) ** 0.5 / 2
    freedom = (0.25 / 3 + 0.25) ** 2 / ((0.25 / 3) ** 2 / 2 + 0.25**2)
    assert found.high - found.mean == pytest.approx(error * stats.t(freedom).ppf(0.975))
    assert found.p_value == pytest.approx(stats.t(freedom).sf(1.25 / error))
    assert gain_over_examples(old, old).low == 0 == gain_over_examples(old, old).high


def test_clients_with_one_example_are_left_out_of_a_gain_over_examples() -> None:
    found = gain_over_examples([np.zeros(1), np.zeros(4)], [np.full(1, 9.0), np.ones(4)])
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)
    nobody = gain_over_examples([np.zeros(1)], [np.ones(1)])
    assert (nobody.low, nobody.high) == (-np.inf, np.inf)
    assert not nobody.sure


def test_equal_gains_are_as_sure_as_so_many_signs() -> None:
    for count, sure in ((6, False), (7, True)):
        for found in (
            gain(np.zeros(count), np.ones(count)),
            gain_over_examples([np.zeros(count)], [np.ones(count)]),
        ):
            assert (found.p_value, found.sure) == (0.5**count, sure)
    assert gain(np.ones(7), np.ones(7)).p_value == 1


def test_nothing_is_said_of_the_gain_of_a_way_without_losses() -> None:
    found = gain(np.full(CLIENTS, np.nan), np.full(CLIENTS, 0.5))
    assert np.isnan(found.mean)
    assert not found.sure


def test_training_alone_may_have_diverged() -> None:
    never = replace(standing("local", 0.6), loss=np.full(CLIENTS, np.nan), course=())
    one, found = standing("one", 0.5), standing("clusters", 0.3, 3)
    assert answered(3, one, never, found) == ("clusters", 3, False)
    assert answered(1, one, never) == ("one model", 1, False)


def test_a_gain_is_a_paired_mean_with_its_interval() -> None:
    old, new = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), np.array([0.5, 1.6, 2.4, 3.6, 4.5, 5.4])
    found = gain(new, old)
    assert found.mean == pytest.approx(0.5)
    # By hand: deviation 0.08944, t of five degrees of freedom 2.5706.
    assert found.high - found.mean == pytest.approx(2.5706 * 0.0894427 / 6**0.5, rel=1e-4)
    assert found.sure
    assert found.rank_p_value == pytest.approx(1 / 64)  # all six signs agree
    assert not gain(old, new).sure
    assert gain(old, old).low == 0 == gain(old, old).high
