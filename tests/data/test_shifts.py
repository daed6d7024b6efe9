from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umbel.checks import UsageError
from umbel.data.shifts import (
    Contrast,
    LabelGroups,
    LabelsAndTurns,
    MixedTurns,
    PermuteLabels,
    Rotate,
    Shift,
    SwapLabels,
    turned,
)

IMAGE = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
LABELS = np.arange(10)


def relabelled(shift: Shift, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    groups = shift.make(10, rng)
    return [group.transform(IMAGE, LABELS, rng)[1].tolist() for group in groups]


def test_quarter_turns_are_exact_and_counter_clockwise() -> None:
    assert turned(IMAGE, 90)[0, 0].tolist() == [[2, 5, 8], [1, 4, 7], [0, 3, 6]]
    assert turned(IMAGE, 180)[0, 0].tolist() == [[8, 7, 6], [5, 4, 3], [2, 1, 0]]
    assert turned(IMAGE, -90).tolist() == turned(IMAGE, 270).tolist()
    assert turned(IMAGE, 0).tolist() == IMAGE.tolist()


@pytest.mark.parametrize("angle", [15.0, 75.0, 105.0, 195.0, 345.0])
def test_other_angles_turn_the_same_way_and_keep_the_size(angle: float) -> None:
    rng = np.random.default_rng(0)
    x = np.zeros((2, 1, 21, 21), dtype=np.float32)
    x[:, :, 6:15, 6:15] = rng.random((2, 1, 9, 9))
    back = turned(turned(x, angle), -angle)
    assert back.shape == x.shape
    assert np.corrcoef(back.ravel(), x.ravel())[0, 1] > 0.85
    near = 90 * round(angle / 90)
    close, far = turned(x, near), turned(x, near + 180)
    assert (
        np.corrcoef(turned(x, angle).ravel(), close.ravel())[0, 1]
        > np.corrcoef(turned(x, angle).ravel(), far.ravel())[0, 1]
    )


def test_rotation_leaves_labels_alone_and_makes_a_group_an_angle() -> None:
    rng = np.random.default_rng(0)
    groups = Rotate((0.0, 90.0)).make(10, rng)
    x, y = groups[1].transform(IMAGE, LABELS[:1], rng)
    assert x.tolist() == turned(IMAGE, 90).tolist()
    assert y.tolist() == [0]
    assert groups[1].labels is None
    assert [group.number for group in groups] == [0, 1]


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), groups=st.integers(1, 45))
def test_each_group_swaps_one_pair_of_labels_of_its_own(seed: int, groups: int) -> None:
    tables = relabelled(SwapLabels(groups), seed)
    swapped = [frozenset(y for y in range(10) if table[y] != y) for table in tables]
    assert all(len(pair) == 2 for pair in swapped)
    assert len(set(swapped)) == groups
    assert all(sorted(table) == list(range(10)) for table in tables)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), groups=st.integers(1, 5))
def test_disjoint_groups_swap_no_label_twice(seed: int, groups: int) -> None:
    tables = relabelled(SwapLabels(groups, disjoint=True), seed)
    swapped = [{y for y in range(10) if table[y] != y} for table in tables]
    assert all(len(pair) == 2 for pair in swapped)
    assert len(set().union(*swapped)) == 2 * groups
    assert all(sorted(table) == list(range(10)) for table in tables)


def test_labels_are_permuted_by_offsets_or_at_random() -> None:
    assert relabelled(PermuteLabels(offsets=(0, 5)))[1] == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]
    tables = relabelled(PermuteLabels(groups=3))
    assert tables[0] == list(range(10))
    assert tables[1] != tables[2]
    assert all(sorted(table) == list(range(10)) for table in tables)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000))
def test_labels_are_permuted_differently_in_each_group(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = PermuteLabels(groups=6).make(3, rng)
    tables = {tuple(group.transform(IMAGE, LABELS[:3], rng)[1].tolist()) for group in groups}
    assert len(tables) == 6
    with pytest.raises(UsageError, match="groups: 7 is not at most 6, the number of permutations"):
        PermuteLabels(groups=7).make(3, rng)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000))
def test_label_groups_are_disjoint(seed: int) -> None:
    groups = LabelGroups(5, 2).make(10, np.random.default_rng(seed))
    held = [label for group in groups for label in group.labels or ()]
    assert sorted(held) == list(range(10))


def test_lists_of_labels_are_crossed_with_angles() -> None:
    rng = np.random.default_rng(0)
    groups = LabelsAndTurns(((0, 1), (2,)), (0.0, 90.0)).make(10, rng)
    assert [group.labels for group in groups] == [(0, 1), (0, 1), (2,), (2,)]
    found = [group.transform(IMAGE, LABELS[:1], rng)[0].tolist() for group in groups]
    assert found == [turned(IMAGE, angle).tolist() for angle in (0, 90, 0, 90)]
    with pytest.raises(UsageError, match=r"labels: .* is not below 2, the number of classes"):
        LabelsAndTurns(((0,), (2,))).make(2, rng)


def test_of_the_third_group_each_image_is_turned_by_the_first_angle_with_probability_kappa() -> (
    None
):
    x, y = np.repeat(IMAGE, 2000, axis=0), np.arange(2000)

    def group(kappa: float, number: int) -> np.ndarray:
        rng = np.random.default_rng(3)
        turns, labels = MixedTurns(kappa=kappa).make(10, rng)[number].transform(x, y, rng)
        assert labels.tolist() == y.tolist()
        assert {image.tobytes() for image in turns} <= {
            IMAGE.tobytes(),
            turned(IMAGE, 180).tobytes(),
        }
        upright: np.ndarray = (turns == IMAGE).all((1, 2, 3))
        return upright

    assert [group(0.3, number).mean() for number in (0, 1)] == [1, 0]
    assert group(0.3, 2).mean() == pytest.approx(0.3, abs=0.03)
    assert [group(kappa, 2).mean() for kappa in (0.0, 1.0)] == [0, 1]
    assert group(0.3, 2).tolist() == group(0.3, 2).tolist()


def test_contrast_changes_pixels_and_leaves_labels_alone() -> None:
    rng = np.random.default_rng(0)
    image = np.array([[[[0.0, 0.5], [0.75, 1.0]]]], dtype=np.float32)
    plain, negative, faint, both = Contrast(offsets=(0.0, 1.0, 0.25, 1.0)).make(10, rng)
    for group, expected in (
        (plain, [0.0, 0.5, 0.75, 1.0]),
        (negative, [1.0, 0.5, 0.25, 0.0]),
        (faint, [0.25, 0.4, 0.475, 0.55]),
        (both, [1.0, 0.85, 0.775, 0.7]),
    ):
        x, y = group.transform(image, LABELS[:1], rng)
        assert x.dtype == np.float32
        assert x.ravel().tolist() == pytest.approx(expected)
        assert y.tolist() == [0]
    with pytest.raises(UsageError, match=r"offsets: \(0\.0,\) is not 4 numbers"):
        Contrast(offsets=(0.0,))
    with pytest.raises(UsageError, match=r"gains: .* is not a list with at least"):
        Contrast((), ())


def test_the_groups_are_a_function_of_the_seed() -> None:
    assert relabelled(SwapLabels(4), 1) == relabelled(SwapLabels(4), 1)
    assert relabelled(SwapLabels(4), 1) != relabelled(SwapLabels(4), 2)


def test_impossible_groups_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(UsageError, match="groups: 6 is not at most 5: there are 10 labels"):
        LabelGroups(6, 2).make(10, rng)
    with pytest.raises(UsageError, match="groups: 2 is not at most the number of pairs"):
        SwapLabels(2).make(2, rng)
    with pytest.raises(
        UsageError, match="groups: 6 is not at most 5, the number of disjoint pairs"
    ):
        SwapLabels(6, disjoint=True).make(10, rng)
    for make in (
        lambda: Rotate(()),
        lambda: Rotate((0.0, 90.0), group_of=(0,)),
        lambda: Rotate((0.0, 90.0), group_of=(0, 2)),
        lambda: SwapLabels(0),
        lambda: PermuteLabels(0),
        lambda: PermuteLabels(offsets=()),
        lambda: LabelGroups(0),
        lambda: LabelGroups(labels_per_group=0),
        lambda: LabelsAndTurns(()),
        lambda: LabelsAndTurns(((0,), ())),
        lambda: LabelsAndTurns(((0, 1), (1,))),
        lambda: LabelsAndTurns(angles=()),
        lambda: MixedTurns((0.0,)),
        lambda: MixedTurns(kappa=1.1),
    ):
        with pytest.raises(UsageError, match="is not"):
            make()
