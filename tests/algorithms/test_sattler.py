"""Sattler's clustered FL: rounds worked by hand, and who goes where when a cluster is cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from tests.federations import answered, context, requested, setup
from umbel.algorithms import Sattler
from umbel.algorithms.base import Known
from umbel.algorithms.sattler import SattlerState
from umbel.checks import UsageError
from umbel.client.layout import Entry, Layout
from umbel.client.work import Gradient, LocalTraining
from umbel.server.aggregation import Averaging

EAGER = Sattler(eps_1=0.5, eps_2=1.0, from_round=0)

# Two towards the right, two towards the left, and nobody in the mean: (0, 0.2).
OPPOSED = [[2.0, 0.0], [2.0, 0.4], [-2.0, 0.0], [-2.0, 0.4]]


def start(num_clients: int, models: Sequence[Sequence[float]] = ((1.0, 1.0),)) -> SattlerState:
    labels = torch.zeros(num_clients, dtype=torch.long)
    nothing = torch.zeros(0, 0)
    return SattlerState(
        torch.tensor(models),
        labels,
        0,
        0.0,
        0.0,
        labels[:0],
        nothing,
        labels - 1,
        torch.zeros(0, 2),
        torch.tensor([-1]),
        torch.zeros(0, 2),
        torch.zeros(0, 2),
    )


def play(
    algorithm: Sattler,
    state: SattlerState,
    clients: Sequence[int],
    update: Sequence[Sequence[float]],
    number: int = 0,
) -> SattlerState:
    """One round in which these clients answer with these updates."""
    everyone = range(len(state.labels))
    flow = algorithm.round(state, context(everyone, len(everyone), 2, number))
    requested(flow)
    return answered(flow, clients, update=update, num_examples=[1] * len(clients))


def test_a_settled_cluster_whose_clients_disagree_is_cut_in_two() -> None:
    after = play(EAGER, start(4), range(4), OPPOSED)
    assert after.labels.tolist() == [0, 0, 1, 1]
    # The cluster took its mean step (0, 0.2) first; then both halves go on from its model.
    torch.testing.assert_close(after.models, torch.tensor([[1.0, 1.2], [1.0, 1.2]]))
    assert after.splits == 1
    assert after.max_norm == pytest.approx(math.hypot(2, 0.4))
    assert after.mean_norm == pytest.approx(0.2)
    assert EAGER.measure(after) == {
        "splits": 1,
        "max_norm": after.max_norm,
        "mean_norm": after.mean_norm,
    }


def test_one_client_that_has_not_settled_is_enough() -> None:
    update = [[1.2, 0.0], [0.6, 0.1], [-0.9, 0.0], [-0.8, 0.0]]  # eps_2 is 1
    assert play(EAGER, start(4), range(4), update).labels.tolist() == [0, 0, 1, 1]


def test_a_member_that_missed_the_split_is_placed_by_its_next_answer() -> None:
    after = play(EAGER, start(6), [0, 1, 2, 3], OPPOSED)
    assert after.labels.tolist() == [0, 0, 1, 1, 0, 0]
    assert after.sibling.tolist() == [-1, -1, -1, -1, 1, 1]
    later = play(EAGER, after, [0, 2, 4], [[0.1, 0.0], [-0.1, 0.0], [-3.0, 0.1]], number=1)
    assert later.labels.tolist() == [0, 0, 1, 1, 1, 0]
    assert later.sibling.tolist() == [-1, -1, -1, -1, -1, 1]
    # What it sent is about a model that is not its own any more: it is in no average.
    moved = later.models - after.models
    torch.testing.assert_close(moved, torch.tensor([[0.1, 0.0], [-0.1, 0.0]]))


def test_who_is_late_trains_the_model_at_which_the_others_were_told_apart() -> None:
    after = play(EAGER, start(6), [0, 1, 2, 3], OPPOSED)
    moved = play(EAGER, after, [0, 2], [[9.0, 0.0], [-9.0, 0.0]], number=1)
    flow = EAGER.round(moved, context(range(6), 6, 2, 2))
    theta = requested(flow).each["theta"]
    assert theta.take(torch.tensor([0, 2, 4, 5])).tolist() == [
        *moved.models.tolist(),
        *[[1.0, 1.0], [1.0, 1.0]],
    ]


# Three kinds of clients; the mean of their directions is short while they are balanced.
WEST, NORTH, SOUTH = [-1.0, 0.0], [0.5, 0.8], [0.5, -0.8]
THREE_KINDS = replace(EAGER, eps_1=0.9, eps_2=0.1)


def test_it_finds_a_half_of_the_half_that_was_cut_off() -> None:
    state = play(THREE_KINDS, start(6), range(5), [WEST, WEST, WEST, NORTH, SOUTH])
    assert state.labels.tolist() == [0, 0, 0, 1, 1, 0]
    state = play(THREE_KINDS, state, [3, 4], [NORTH, SOUTH], number=1)
    assert state.labels.tolist() == [0, 0, 0, 1, 2, 0]
    state = play(THREE_KINDS, state, [5], [[0.5, 0.0]], number=2)
    assert state.labels.tolist() == [0, 0, 0, 1, 2, 1]
    state = play(THREE_KINDS, state, [5], [SOUTH], number=3)
    assert state.labels.tolist() == [0, 0, 0, 1, 2, 2]


@pytest.mark.parametrize(
    "algorithm",
    [
        replace(EAGER, eps_1=0.2),  # the mean is as long as that
        replace(EAGER, eps_2=2.1),  # no update is as long as that
        replace(EAGER, from_round=1),
        replace(EAGER, gamma_max=0.999),
    ],
    ids=str,
)
def test_a_cluster_is_not_cut_before_every_condition_holds(algorithm: Sattler) -> None:
    after = play(algorithm, start(4), range(4), OPPOSED)
    assert after.labels.tolist() == [0, 0, 0, 0]
    assert after.models.shape == (1, 2)
    assert after.splits == 0


def test_the_gap_between_the_halves_is_that_of_their_most_similar_clients() -> None:
    # Right, up, left: complete linkage joins two neighbours, whose cosine with the third is 0.
    update = [[2.0, 0.0], [0.0, 2.0], [-2.0, -2.0]]
    cosine = -(0.5**0.5)  # of the third with either of the others
    gap = math.sqrt((1 - cosine) / 2)
    state = start(3)
    below, above = (replace(EAGER, gamma_max=gap + change) for change in (-0.01, 0.01))
    assert play(below, state, range(3), update).labels.tolist() == [0, 0, 1]
    assert play(above, state, range(3), update).labels.tolist() == [0, 0, 0]


def test_linkage_is_that_of_the_authors_code_or_the_optimal_bipartition() -> None:
    degrees = torch.tensor([0.0, 30.0, 70.0, 115.0, 165.0]).deg2rad()
    update = torch.stack([degrees.cos(), degrees.sin()], dim=1).mul(2).tolist()
    lax = replace(EAGER, eps_1=9.0)
    complete = play(lax, start(5), range(5), update)
    assert complete.labels.tolist() == [1, 1, 0, 0, 0]
    # The largest gap between neighbours, 50 degrees, separates best (FLACC, Remark 3).
    best = play(replace(lax, linkage="single"), start(5), range(5), update)
    assert best.labels.tolist() == [0, 0, 0, 0, 1]


def test_a_member_that_did_not_answer_stays_with_the_larger_half() -> None:
    clients, update = [0, 2, 3], [[2.0, 0.0], [-1.0, 0.1], [-1.0, -0.1]]
    assert play(EAGER, start(4), clients, update).labels.tolist() == [1, 0, 0, 0]
    # On a tie, with the half of the first client that answered.
    tie = play(EAGER, start(4), [1, 3], [[2.0, 0.0], [-2.0, 0.0]])
    assert tie.labels.tolist() == [0, 0, 0, 1]


def test_a_cluster_in_which_one_or_nobody_answered_is_not_cut() -> None:
    state = replace(start(3, [[0.0, 0.0], [5.0, 5.0]]), labels=torch.tensor([0, 0, 1]))
    after = play(replace(EAGER, eps_1=9.0), state, [0], [[2.0, 0.0]])
    assert after.labels.tolist() == [0, 0, 1]
    assert after.models.tolist() == [[2.0, 0.0], [5.0, 5.0]]


def test_a_round_may_be_one_gradient_step() -> None:
    algorithm = replace(EAGER, send="gradient", local=LocalTraining(lr=0.5, lr_decay=0.5))
    flow = algorithm.round(start(4), context(range(4), 4, 2, number=1))
    assert requested(flow).work == Gradient()
    after = answered(flow, range(4), gradient=OPPOSED, num_examples=[1, 1, 1, 1])
    # Minus lr 0.25 times the mean gradient (0, 0.2); the norms are those of the gradients.
    torch.testing.assert_close(after.models, torch.tensor([[1.0, 0.95], [1.0, 0.95]]))
    assert after.labels.tolist() == [0, 0, 1, 1]
    assert after.mean_norm == pytest.approx(0.2)


def test_buffers_and_shared_steps_have_no_say_in_a_split() -> None:
    state = replace(
        start(4, [[0.0, 0.0], [0.0, 0.0]]),
        labels=torch.tensor([0, 0, 1, 1]),
        headings=torch.zeros(0, 1),
        stayed=torch.zeros(0, 1),
    )
    ctx = replace(
        context(range(4), 4),
        layout=Layout((Entry("w", torch.Size([1])),), (Entry("mean", torch.Size([1])),)),
    )
    algorithm = replace(EAGER, averaging=Averaging(shared=("w",)))
    flow = algorithm.round(state, ctx)
    requested(flow)
    update = [[2.0, 9.0], [-2.0, 9.0], [3.0, 9.0], [3.0, -9.0]]
    after = answered(flow, range(4), update=update, num_examples=[1] * 4)
    # Cluster 0 stands still by itself; cluster 1 does not, although all share the step 1.5.
    assert after.labels.tolist() == [0, 2, 1, 1]
    assert after.models.tolist() == [[1.5, 9.0], [1.5, 0.0], [1.5, 9.0]]


def test_everyone_has_to_take_part() -> None:
    with pytest.raises(UsageError, match=r"participation: 0\.5 is not 1: all clients take part"):
        Sattler().check(Known(0.5))
    state = Sattler().init(setup(4))
    assert state.labels.tolist() == [0, 0, 0, 0]


def test_settings_out_of_range_are_refused() -> None:
    for name, value in {"eps_1": 0, "eps_2": -1, "from_round": -1, "gamma_max": 1}.items():
        with pytest.raises(UsageError, match=f"{name}: {value} is not"):
            Sattler(**{name: value})  # type: ignore[arg-type]
