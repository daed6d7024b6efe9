"""FLACC against the paper's own example, and against its equations by brute force."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.federations import answered, context, requested, setup
from umbel.algorithms import FLACC
from umbel.algorithms.flacc import FLACCState
from umbel.checks import UsageError
from umbel.client.layout import Entry, Layout
from umbel.client.work import LocalTraining, TrainAndGradient
from umbel.flow import returned

Vectors = NDArray[np.float64]


def start(algorithm: FLACC, num_clients: int, num_weights: int = 2) -> FLACCState:
    zeros = torch.zeros(num_weights).double()
    return algorithm.init(replace(setup(num_clients, num_weights), new_model=lambda _: zeros))


def play(
    algorithm: FLACC, state: FLACCState, number: int, cohort: Sequence[int], updates: Vectors
) -> FLACCState:
    """One round in which the cohort sends these updates (N, P)."""
    ctx = context(cohort, len(state.labels), updates.shape[1], number)
    flow = algorithm.round(state, ctx)
    requested(flow)
    return answered(flow, cohort, update=updates, num_examples=[1] * len(cohort))


def entities(state: FLACCState) -> set[frozenset[int]]:
    labels = state.labels.tolist()
    return {frozenset(c for c, own in enumerate(labels) if own == k) for k in set(labels)}


def directions(*degrees: float) -> Vectors:
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


# ------------------------------------------------------------ the paper's example


# Fig. 1, with clients counted from 0: three distributions, and client 2 between two of them. It is
# least similar to clients 0, 6 and 4 of the three subservers, and most of these to client 0.
FIG_1 = directions(0, 8, 35, 115, 129, 240, 230)


def test_the_seven_clients_of_figure_1_merge_in_the_papers_order() -> None:
    algorithm = FLACC(n_merge=1)
    state, everyone, seen = start(algorithm, 7), list(range(7)), []
    for number in range(6):
        before = entities(state)
        state = play(algorithm, state, number, everyone, FIG_1)
        seen.append(sorted(map(sorted, entities(state) - before)))
    assert seen == [[[0, 1]], [[5, 6]], [[3, 4]], [[0, 1, 2]], [], []]
    assert entities(state) == {frozenset({0, 1, 2}), frozenset({3, 4}), frozenset({5, 6})}
    assert state.last_merge == 3


# ------------------------------------------------------------- conditions, one by one


def test_as_close_across_as_within_is_not_closer() -> None:
    algorithm, alike = FLACC(n_merge=1), np.array([[1.0, 0.0]] * 4)
    state = play(algorithm, start(algorithm, 4), 0, [0, 1], alike[:2])
    state = play(algorithm, state, 1, [2, 3], alike[:2])
    state = play(algorithm, state, 2, [0, 1, 2, 3], alike)  # Phi = 1 - 1
    assert entities(state) == {frozenset({0, 1}), frozenset({2, 3})}


# --------------------------------------------------------------- separation


def merged_pairs(algorithm: FLACC, last_merge: int) -> FLACCState:
    """Four clients in two entities."""
    state = start(algorithm, 4)
    return replace(state, labels=torch.tensor([0, 0, 2, 2]), last_merge=last_merge)


def test_entities_separate_after_n_sep_rounds_without_a_merge() -> None:
    algorithm = FLACC(n_sep=3)
    opposite = directions(0, 180)
    state = merged_pairs(algorithm, last_merge=5)
    for number in range(6, 9):
        state = play(algorithm, state, number, [0, 2], opposite)
        assert not state.separated
    state = play(algorithm, state, 9, [0, 2], opposite)
    assert state.separated
    assert state.labels.tolist() == [0, 0, 1, 1]
    assert state.models.shape == (2, 2)


def test_no_merge_in_the_first_n_sep_rounds_does_not_separate_early() -> None:
    algorithm = FLACC(n_sep=2)
    state = start(algorithm, 2)
    for number, separated in [(0, False), (1, False), (2, True)]:
        state = play(algorithm, state, number, [0, 1], directions(0, 180))
        assert state.separated == separated


def test_after_separation_each_entity_averages_its_own_and_an_absent_one_stays() -> None:
    algorithm = FLACC(n_sep=1)
    state = replace(merged_pairs(algorithm, 0), models=torch.tensor([[1.0, 2.0]]).double())
    ctx = context([0, 1], 4, num_weights=2, number=9)
    flow = algorithm.round(state, ctx)
    request = requested(flow)
    assert [request.sent_to(n)["theta"].tolist() for n in range(2)] == [[1.0, 2.0]] * 2
    update = torch.tensor([[4.0, 0.0], [0.0, 8.0]]).double()
    after = answered(flow, [0, 1], update=update, num_examples=[3, 1])
    assert after.models.tolist() == [[4.0, 4.0], [1.0, 2.0]]
    served = returned(algorithm.serve(after, ctx.everyone), lambda _: pytest.fail("asked"))
    assert served.models.index.tolist() == [0, 0, 1, 1]


def test_until_separation_all_are_served_the_global_model_and_labelled_by_entity() -> None:
    algorithm = FLACC()
    state = merged_pairs(algorithm, 0)
    flow = algorithm.serve(state, context([0, 1, 2, 3], 4))
    served = returned(flow, lambda _: pytest.fail("asked"))
    assert served.models.index.tolist() == [0, 0, 0, 0]
    assert served.labels.tolist() == [0, 0, 2, 2]


def test_a_hundred_clients_in_four_groups_separate_at_round_58_at_the_earliest() -> None:
    angles = np.repeat([0.0, 90.0, 180.0, 270.0], [10, 20, 30, 40])
    spread = np.random.default_rng(0).normal(scale=3, size=(100, 100))
    algorithm = FLACC()
    state, number = start(algorithm, 100), 0
    while not state.separated:
        updates = directions(*(angles + spread[number]))
        state = play(algorithm, state, number, range(100), updates)
        number += 1
    assert len(entities(state)) == 4
    assert number - 1 == 58


# ------------------------------------------------------------------ other options


def test_gradients_may_be_compared_instead_of_updates() -> None:
    algorithm = FLACC(similarity="gradient")
    flow = algorithm.round(start(algorithm, 2), context([0, 1], 2, num_weights=2))
    assert requested(flow).work == TrainAndGradient(LocalTraining())
    columns = {"update": directions(0, 10), "gradient": directions(0, 170)}
    after = answered(flow, [0, 1], num_examples=[1, 1], **columns)
    assert after.merges == 0
    assert after.best_cross == pytest.approx(math.cos(math.radians(170)))
    torch.testing.assert_close(after.models[0], torch.from_numpy(directions(0, 10).mean(0)))


def test_buffers_have_no_say_in_who_is_similar() -> None:
    weights, rest = Entry("w", torch.Size([2])), Entry("running_mean", torch.Size([1]))
    algorithm = FLACC()
    ctx = replace(context([0, 1], 2), layout=Layout((weights,), (rest,)))
    flow = algorithm.round(start(algorithm, 2, num_weights=3), ctx)
    requested(flow)
    update = np.hstack([directions(0, 10), [[50.0], [-50.0]]])
    after = answered(flow, [0, 1], update=update, num_examples=[1, 1])
    assert after.best_cross == pytest.approx(math.cos(math.radians(10)))


def test_a_lost_reply_leaves_what_was_known() -> None:
    algorithm = FLACC(alpha_0=0.9)
    state = play(algorithm, start(algorithm, 3), 0, [0, 1, 2], directions(0, 60, 120))
    ctx = context([0, 1, 2], 3, num_weights=2, number=1)
    flow = algorithm.round(state, ctx)
    requested(flow)
    after = answered(flow, [0, 2], update=directions(0, 0), num_examples=[1, 1])
    known = dict(zip(map(tuple, after.pairs.tolist()), after.similarity.tolist(), strict=True))
    assert known[0, 1] == pytest.approx(0.5)
    assert known[0, 2] == pytest.approx(1.0)


def test_a_round_without_replies_merges_nothing_and_forgets_as_others_do() -> None:
    algorithm = FLACC(memory=1)
    state = play(algorithm, start(algorithm, 3), 0, [0, 1, 2], directions(0, 10, 120))
    assert state.merges == 1
    for number, remembered in ((1, 3), (2, 0)):
        flow = algorithm.round(state, context([0, 1, 2], 3, num_weights=2, number=number))
        requested(flow)
        state = answered(flow, [], update=torch.zeros(0, 2), num_examples=torch.zeros(0).long())
        assert state.merges == 0
        assert math.isnan(state.best_cross)
        assert len(state.pairs) == remembered
    assert entities(state) == {frozenset({0, 1}), frozenset({2})}


def test_a_single_reply_or_a_single_client_merges_nothing() -> None:
    algorithm = FLACC()
    state = play(algorithm, start(algorithm, 3), 0, [1], directions(20))
    assert math.isnan(state.best_cross)
    assert entities(state) == {frozenset({0}), frozenset({1}), frozenset({2})}
    assert len(play(algorithm, start(algorithm, 1), 0, [0], directions(20)).models) == 1


def test_memory_grows_with_the_pairs_remembered_not_with_the_clients() -> None:
    algorithm, rng = FLACC(alpha_0=0.99, n_sep=100), np.random.default_rng(0)
    state = start(algorithm, 100_000, num_weights=5)
    for number in range(15):
        cohort = np.sort(rng.choice(100_000, 20, replace=False)).tolist()
        state = play(algorithm, state, number, cohort, rng.normal(size=(20, 5)))
    assert len(state.pairs) <= 11 * 190


@pytest.mark.parametrize(
    ("name", "value"), [("n_merge", 0), ("memory", -1), ("n_sep", 0), ("alpha_0", -1.0)]
)
def test_settings_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name}: {value} is not"):
        FLACC(**{name: value})  # type: ignore[arg-type]


# --------------------------------------------------- equations 9 to 18 by brute force


@dataclass
class BruteForce:
    """Algorithm 1, lines 10 to 19, written from the equations over a dictionary of all pairs."""

    num_clients: int
    n_merge: int
    memory: int
    alpha_0: float
    admissible_only: bool
    one_is_enough: bool = False
    known: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    entities: list[frozenset[int]] = field(default_factory=list)
    best: float = math.nan

    def __post_init__(self) -> None:
        self.entities = [frozenset({client}) for client in range(self.num_clients)]

    def alphas(self, one: frozenset[int], other: frozenset[int]) -> list[float]:
        pairs = {(min(i, j), max(i, j)) for i in one for j in other if i != j}
        return [self.known[pair][0] for pair in pairs if pair in self.known]

    def potential(self, one: frozenset[int], other: frozenset[int]) -> float:
        """Eqs. 11 to 13; what is not known bounds nothing."""
        inner = [self.alphas(one, one), self.alphas(other, other)]
        if not any(inner) or not (self.one_is_enough or all(inner)):
            return math.inf
        return max(self.alphas(one, other)) - min(min(within) for within in inner if within)

    def may_merge(self, one: frozenset[int], other: frozenset[int]) -> bool:
        above = min(self.alphas(one, other)) > self.alpha_0  # eq. 16
        subservers = len(one) > 1 and len(other) > 1
        return above and (not subservers or self.potential(one, other) > 0)  # eq. 14

    def merge_once(self, first: bool) -> bool:
        pairs = [p for p in combinations(self.entities, 2) if self.alphas(*p)]
        if first and pairs:
            self.best = max(min(self.alphas(*p)) for p in pairs)
        if self.admissible_only:
            pairs = [p for p in pairs if self.may_merge(*p)]
        if not pairs:
            return False
        one, other = max(pairs, key=lambda p: min(self.alphas(*p)))  # eq. 9
        if not self.may_merge(one, other):
            return False
        self.entities = [e for e in self.entities if e not in (one, other)] + [one | other]
        return True

    def round(self, number: int, cohort: Sequence[int], updates: Vectors) -> int:
        for (a, i), (b, j) in combinations(enumerate(cohort), 2):
            u, v = updates[a], updates[b]
            self.known[i, j] = (float(u @ v / np.sqrt(u @ u) / np.sqrt(v @ v)), number)  # eq. 19
        self.best, merges = math.nan, 0
        for _ in range(self.n_merge):
            if not self.merge_once(first=merges == 0):
                break
            merges += 1
        self.known = {p: (a, t) for p, (a, t) in self.known.items() if number - t <= self.memory}
        return merges


@settings(max_examples=50)
@given(
    seed=st.integers(0, 10**6),
    num_clients=st.integers(2, 12),
    dimensions=st.integers(2, 4),
    n_merge=st.integers(1, 4),
    memory=st.integers(0, 4),
    alpha_0=st.floats(-0.9, 0.9),
    best_of=st.sampled_from(["admissible", "all"]),
    within=st.sampled_from(["both", "known"]),
)
def test_merging_is_what_equations_9_to_18_say(
    seed: int,
    num_clients: int,
    dimensions: int,
    n_merge: int,
    memory: int,
    alpha_0: float,
    best_of: str,
    within: str,
) -> None:
    rng = np.random.default_rng(seed)
    algorithm = FLACC(
        n_merge=n_merge,
        memory=memory,
        n_sep=1000,
        alpha_0=alpha_0,
        best_of=best_of,  # type: ignore[arg-type]
        within=within,  # type: ignore[arg-type]
    )
    admissible, one = best_of == "admissible", within == "known"
    reference = BruteForce(num_clients, n_merge, memory, alpha_0, admissible, one)
    state = start(algorithm, num_clients, dimensions)
    # Three loose groups: there is something to merge, and something to keep apart.
    centres = rng.normal(size=(3, dimensions))[rng.integers(0, 3, num_clients)]
    for number in range(12):
        size = int(rng.integers(1, num_clients + 1))
        cohort = sorted(rng.choice(num_clients, size, replace=False).tolist())
        updates = centres[cohort] + 0.7 * rng.normal(size=(size, dimensions))
        state = play(algorithm, state, number, cohort, updates)
        merges = reference.round(number, cohort, updates)
        assert entities(state) == set(reference.entities)
        assert state.merges == merges
        assert state.best_cross == pytest.approx(reference.best, nan_ok=True)
        assert set(map(tuple, state.pairs.tolist())) == set(reference.known)
