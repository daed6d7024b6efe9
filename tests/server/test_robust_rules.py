"""Robust rules: by hand, as the papers define them, as byzfl does, and in every method.

byzfl needs packages that nothing here does: `pip install --no-deps byzfl==0.0.11` adds its tests.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from tests.algorithms.test_contract import LOCAL, by_name
from tests.federations import blobs, layout, mlp
from tests.server.test_averaging_rules import AVERAGING, with_rule
from umbel.algorithms import LCFL, FedAvg
from umbel.algorithms.base import Known
from umbel.checks import UsageError
from umbel.client.layout import Entry, Layout
from umbel.result.run import Run
from umbel.run.membership import Membership
from umbel.server.aggregation import Averaging
from umbel.server.averaging_rules import AveragingRule
from umbel.server.robust_rules import (
    FLAME,
    AgainstLiars,
    CentredClipping,
    FLTrust,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    NormBound,
    Robust,
    TrimmedMean,
)
from umbel.testing.runs import last_state, run_of

Array = NDArray[np.float64]

RULES: dict[str, Robust] = {
    "median": Median(),
    "geometric median": GeometricMedian(),
    "krum": Krum(),
    "multi-krum": MultiKrum(),
    "centred clipping": CentredClipping(),
    "norm bound": NormBound(),
    "flame": FLAME(),
    "fltrust": FLTrust(trusted=(0, 1)),
    "mixing, median": Median(mixing=True),
    "mixing, krum": Krum(mixing=True),
}
SQUARE = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [100.0, 100.0]])
HALF = 0.5**0.5


def step_of(
    rule: AveragingRule, rows: Tensor, weights: list[int] | None = None, **more: Any
) -> Tensor:
    """The step (P,) of one cluster with these updates."""
    number, one = len(rows), torch.ones(len(rows), dtype=torch.long)
    examples = one if weights is None else torch.tensor(weights)
    clients = torch.arange(number)
    averaging = Averaging(rule=rule)
    sums = averaging.sums(rows, one - 1, examples, 1, clients)
    return averaging.mean(sums, layout(rows.shape[1]), **more)[0]


@pytest.mark.parametrize(
    ("rule", "step"),
    [
        # 0, 0, 1, 1, 100 in both values.
        (Median(), [1.0, 1.0]),
        # Each corner has two others at a squared distance of 1: all four are lowest.
        (Krum(), [0.5, 0.5]),
        (MultiKrum(), [0.5, 0.5]),
        # Norms 0, 1, 1, 1.41 and 141: (1, 0), (0, 1), and twice (.71, .71), by 5.
        (NormBound(), [(1 + 2 * HALF) / 5] * 2),
        (NormBound(radius=100.0), [(2 + 100 * HALF) / 5] * 2),
        # At first v = 0.
        (CentredClipping(), [(1 + 2 * HALF) / 5] * 2),
        # The cosines with (1, 0) are 0, 0, .71 and .71; both are scaled to a norm of 1.
        (FLTrust(trusted=(1,)), [HALF, HALF]),
        # With (1, 1) they are 0, .71, .71 and 1, and the norms are 1.41.
        (FLTrust(trusted=(3,)), [(1 + 1) / (1 + 2 * HALF)] * 2),
    ],
    ids=str,
)
def test_steps_are_those_worked_by_hand(rule: AveragingRule, step: list[float]) -> None:
    torch.testing.assert_close(step_of(rule, SQUARE), torch.tensor(step))
    order = torch.tensor([4, 1, 2, 3, 0])  # the trusted ones keep their numbers
    torch.testing.assert_close(step_of(rule, SQUARE[order]), torch.tensor(step))


def test_krum_takes_the_one_update_that_others_are_nearest_to() -> None:
    # n = 7, f = 2: three nearest. 9 and 9.5 are together.
    rows = torch.tensor([[0.0], [1.5], [3.0], [4.0], [5.5], [9.0], [9.5]])
    # 3: 1 + 2.25 + 6.25; 4: 1 + 2.25 + 6.25 too; 1.5: 2.25 + 2.25 + 6.25; 5.5: 2.25 + 6.25 + 12.25.
    assert step_of(Krum(), rows).tolist() == [3.5]
    rows[0] = 0.5  # 1.5: 1 + 2.25 + 6.25: three are equal
    assert step_of(Krum(), rows).tolist() == pytest.approx([8.5 / 3])


def test_flame_admits_the_direction_of_most_and_bounds_lengths() -> None:
    angles = torch.tensor([0.0, 0.02, -0.02, 0.01, -0.01, 3.0, 3.01])
    lengths = torch.tensor([1.0, 1.0, 1.0, 2.0, 2.0, 8.0, 8.0])[:, None]
    rows = lengths * torch.stack([angles.cos(), angles.sin()], 1)
    # The median norm is 2: nobody who is admitted is longer.
    expected = rows[:5].mean(0)
    torch.testing.assert_close(step_of(FLAME(), rows), expected)


def test_centred_clipping_starts_at_the_last_step() -> None:
    averaging = Averaging(rule=CentredClipping(radius=1.0, passes=2))
    labels, one = torch.tensor([0, 0, 0]), torch.ones(3, dtype=torch.long)
    steps: list[Any] = []
    moments: tuple[Tensor, ...] = ()
    for values in ([1.0, 1.0, 4.0], [2.0, 2.0, 5.0]):
        sums = averaging.sums(torch.tensor(values)[:, None], labels, one, 2)
        step, moments = averaging.move(sums, layout(1), moments)
        steps.append(step[:, 0].tolist())
    # v = 0, 1, 1 + 1/3. Then 4/3 + (2/3 + 2/3 + 1) / 3 = 2.11, 2.11 + (-.11 - .11 + 1) / 3.
    assert steps[0] == pytest.approx([4 / 3, 0])
    assert steps[1] == pytest.approx([19 / 9 + 7 / 27, 0])
    # Where a method's step is the mean times a factor, v is the last step divided by it.
    sums = averaging.sums(torch.tensor([[0.0], [0.0], [0.0]]), labels, one, 2)
    after = averaging.mean(sums, layout(1), (torch.tensor([[-1.0], [0.0]]),), scale=-0.1)
    assert after[0, 0] == pytest.approx(8.0)
    assert averaging.mean(sums, layout(1), (torch.ones(2, 1),), scale=0.0)[0, 0] == 0


# As the papers define them, written once more with NumPy alone.


def mixed(x: Array, f: int) -> Array:
    apart = ((x[:, None] - x) ** 2).sum(2)
    return np.array([x[np.argsort(row)[: len(x) - f]].mean(0) for row in apart])


def krum_scores(x: Array, f: int) -> Array:
    apart = np.sort(((x[:, None] - x) ** 2).sum(2), 1)[:, 1:]
    scores: Array = apart[:, : len(x) - f - 2].sum(1)
    return scores


def geometric_median(x: Array, nu: float, passes: int = 4000) -> Array:
    z = x.mean(0)
    for _ in range(passes):
        near = 1 / np.maximum(nu, np.linalg.norm(x - z, axis=1))
        z = (near[:, None] * x).sum(0) / near.sum()
    whole: Array = z
    return whole


def clipped(x: Array, v: Array, radius: float) -> Array:
    longer = np.maximum(np.linalg.norm(x - v, axis=1) / radius, 1)
    moved: Array = v + ((x - v) / longer[:, None]).mean(0)
    return moved


PLAIN: dict[str, tuple[AgainstLiars, Callable[[Array, int], Array]]] = {
    "median": (Median(), lambda x, _: np.median(x, axis=0)),
    "median after mixing": (Median(mixing=True), lambda x, f: np.median(mixed(x, f), axis=0)),
    "krum": (Krum(), lambda x, f: x[krum_scores(x, f).argmin()]),
    "multi-krum": (
        MultiKrum(),
        lambda x, f: x[np.argsort(krum_scores(x, f))[: len(x) - f]].mean(0),
    ),
    "geometric median": (GeometricMedian(), lambda x, _: geometric_median(x, 1e-6)),
    "norm bound": (NormBound(radius=2.0), lambda x, _: clipped(x, 0 * x[0], 2.0)),
    "centred clipping": (
        CentredClipping(radius=2.0, passes=3),
        lambda x, _: clipped(x, clipped(x, clipped(x, 0 * x[0], 2.0), 2.0), 2.0),
    ),
}


def samples(number: int) -> Iterator[Array]:
    """Updates of 12 clients, of whom two or so are far off."""
    rng = np.random.default_rng(number)
    for far in (1.0, 30.0):
        x = rng.normal(size=(12, 40)) + rng.normal(size=40)
        x[:2] *= far
        yield x


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("liars", [0.0, 0.2, 0.3])
def test_rules_are_those_of_the_papers(name: str, liars: float) -> None:
    rule, plain = PLAIN[name]
    rule = replace(rule, liars=liars)
    for x in samples(3):
        found = step_of(rule, torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(found, plain(x, rule.num_liars(len(x))), atol=1e-6)


@pytest.fixture(scope="module")
def byzfl() -> Any:
    """The rules of byzfl, whose own `__init__` needs torchvision and more."""
    spec = find_spec("byzfl")
    if spec is None:
        pytest.skip("byzfl is not installed")
    package = ModuleType("byzfl")
    package.__path__ = list(spec.submodule_search_locations or [])
    sys.modules["byzfl"] = package
    return importlib.import_module("byzfl.aggregators")


def test_rules_are_those_of_byzfl_where_it_follows_the_paper(byzfl: Any) -> None:
    for x in samples(5):
        rows, f = torch.from_numpy(x), 3  # .2 of 12, rounded up
        for rule, theirs in (
            (Median(), byzfl.Median()),
            (TrimmedMean(trim=0.25), byzfl.TrMean(f)),
            (GeometricMedian(), byzfl.GeometricMedian(1e-6, 4000)),
            (CentredClipping(radius=2.0, passes=3), byzfl.CenteredClipping(None, 3, 2.0)),
            (NormBound(radius=2.0), lambda x: byzfl.Clipping(2.0)(x.copy()).mean(0)),
            (Median(mixing=True), lambda x: byzfl.Median()(byzfl.NNM(3)(x))),
        ):
            np.testing.assert_allclose(step_of(rule, rows).numpy(), theirs(x), atol=1e-6)
        # Its Krum counts one neighbour more than the paper: n - f - 1.
        scores = np.sort(((x[:, None] - x) ** 2).sum(2), 1)[:, 1 : 12 - f]
        assert np.array_equal(byzfl.Krum(f)(x), x[scores.sum(1).argmin()])
        # Its geometric median makes three passes from 0, with nu .1, unless told otherwise.
        assert np.abs(byzfl.GeometricMedian()(x) - geometric_median(x, 0.1)).max() > 1e-4


ROWS = st.lists(
    st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=3, max_size=3),
    min_size=3,
    max_size=11,
)


@given(ROWS, st.randoms(use_true_random=False), st.sampled_from(sorted(RULES)))
def test_results_do_not_depend_on_the_order_of_clients(
    rows: list[list[float]], random: Any, name: str
) -> None:
    x, order = torch.tensor(rows).double(), [*range(len(rows))]
    random.shuffle(order)
    rule, other = RULES[name], RULES[name]
    if isinstance(rule, FLTrust):
        other = replace(rule, trusted=tuple(order.index(each) for each in rule.trusted))
    if isinstance(rule, FLAME):
        x = x + torch.rand(x.shape, generator=torch.Generator().manual_seed(1)).double()
    found = step_of(rule, x)
    assert found.isfinite().all()
    torch.testing.assert_close(step_of(other, x[order]), found, atol=1e-6, rtol=1e-6)


@given(ROWS, st.sampled_from(["median", "geometric median", "krum", "multi-krum"]))
def test_most_rules_move_with_their_updates(rows: list[list[float]], name: str) -> None:
    x, by = torch.tensor(rows).double(), torch.tensor([3.0, -2.0, 0.5]).double()
    torch.testing.assert_close(
        step_of(RULES[name], x + by), step_of(RULES[name], x) + by, atol=1e-5, rtol=1e-5
    )


@given(ROWS, st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30))
def test_liars_do_not_move_medians_beyond_honest_values(
    rows: list[list[float]], one: int, other: int
) -> None:
    honest = torch.tensor(rows)
    f = (len(rows) - 1) // 2
    lies = torch.tensor([float(one), float(other)])[torch.arange(f) % 2, None].expand(f, 3)
    x = torch.cat([honest, lies])
    for rule in (Median(liars=0.49, small="median"), TrimmedMean(trim=(f + 0.1) / len(x))):
        found = step_of(rule, x)
        assert (honest.min(0).values <= found).all()
        assert (found <= honest.max(0).values).all()


@pytest.mark.parametrize("name", RULES)
def test_nothing_a_client_sends_breaks_a_rule(name: str) -> None:
    rule = RULES[name]
    draw = torch.Generator().manual_seed(0)
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        for number in (1, 2, 3, 4, 7):
            x = torch.randn(number, 5, generator=draw).to(dtype)
            for rows in (x, 0 * x, x[:1].expand(number, 5), x.index_fill(0, torch.tensor(0), 1e38)):
                for weights in ([1] * number, [2**62] + [1] * (number - 1), [0] * number):
                    found = step_of(rule, rows, weights)
                    assert found.dtype == dtype
                    assert found.isfinite().all()
    # Numbers of examples do not count, but for those who have none.
    x = torch.randn(6, 5, generator=draw)
    assert torch.equal(step_of(rule, x, [10**9, 1, 1, 1, 1, 1]), step_of(rule, x))
    assert torch.equal(step_of(rule, x, [1, 1, 1, 1, 1, 0]), step_of(rule, x[:5]))
    assert step_of(TrimmedMean(), x, [0] * 6).tolist() == [0] * 5


@pytest.mark.parametrize("rule", [GeometricMedian(), Krum(), MultiKrum(), Median(mixing=True)])
def test_liars_that_are_far_off_do_not_hide_small_differences(rule: AgainstLiars) -> None:
    rows = torch.randn(10, 50, generator=torch.Generator().manual_seed(0)).double()
    found = []
    for far in (1e4, 1e12, 1e30):
        x = rows.clone()
        x[:2] = far * torch.tensor([[1.0], [-1.0]]).double()
        found.append(step_of(rule, x))
    assert found[0].norm() < rows.norm(dim=1).max()
    torch.testing.assert_close(found[1], found[0], atol=1e-2, rtol=0)
    torch.testing.assert_close(found[2], found[0], atol=1e-2, rtol=0)


STATISTICS = Layout((Entry("w", torch.Size([2])),), (Entry("norm.running_var", torch.Size([1])),))


@pytest.mark.parametrize("name", RULES)
def test_statistics_do_not_decide_and_are_averaged_robustly(name: str) -> None:
    averaging = Averaging(rule=RULES[name])
    labels, one = torch.zeros(7, dtype=torch.long), torch.ones(7, dtype=torch.long)
    x = torch.randn(7, 2, generator=torch.Generator().manual_seed(2)) + 2
    x[6] = -50
    found = []
    for scale in (1.0, 1e4):
        numbers = scale * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -1e6])[:, None]
        sums = averaging.sums(torch.cat([x, numbers], 1), labels, one, 1, torch.arange(7))
        found.append(averaging.mean(sums, STATISTICS)[0])
    assert torch.equal(found[0][:2], found[1][:2])
    assert 1 <= float(found[0][2]) <= 6
    torch.testing.assert_close(found[0][2] * 1e4, found[1][2])


def test_each_cluster_has_a_step_of_its_own_and_shared_values_one_of_all() -> None:
    names = Layout((Entry("trunk", torch.Size([1])), Entry("head", torch.Size([1]))), ())
    rows = torch.tensor([1.0, 2.0, 9.0, 11.0, 12.0, 19.0])[:, None].expand(6, 2)
    labels, one = torch.tensor([0, 0, 0, 2, 2, 2]), torch.ones(6, dtype=torch.long)
    averaging = Averaging(shared=("trunk",), rule=Median())
    step = averaging.step(rows, labels, one, 3, names)
    assert step.tolist() == [[10.0, 2.0], [10.0, 0.0], [10.0, 12.0]]
    averaging = replace(averaging, rule=CentredClipping(radius=100.0))
    sums = averaging.sums(rows, labels, one, 3)
    step, moments = averaging.move(sums, names)
    step, _ = averaging.move(sums, names, moments)
    torch.testing.assert_close(step[:, 0], torch.full((3,), 9.0))


def test_fltrust_compares_clusters_without_a_trusted_client_with_all_of_these() -> None:
    rows = torch.tensor([[2.0, 0.0], [3.0, 0.0], [0.0, 4.0], [1.0, 0.0], [-3.0, 0.0]])
    labels, one = torch.tensor([0, 0, 1, 1, 2]), torch.ones(5, dtype=torch.long)
    clients = torch.tensor([5, 3, 8, 9, 1])
    averaging = Averaging(rule=FLTrust(trusted=(5,)))
    sums = averaging.sums(rows, labels, one, 4, clients)
    step = averaging.mean(sums, layout(2))
    # Cluster 2 has no client that is trusted at all: it takes the server's own step.
    assert step.tolist() == [[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 0.0]]
    # Without an answer of a trusted client: medians.
    missing = replace(averaging, rule=FLTrust(trusted=(7,)))
    step = missing.mean(replace(sums), layout(2))
    assert step.tolist() == [[2.5, 0.0], [0.5, 2.0], [-3.0, 0.0], [0.0, 0.0]]
    with pytest.raises(UsageError, match=r"averaging\.rule: FLTrust needs the numbers of clients"):
        averaging.step(rows, labels, one, 4, layout(2))


def test_small_clusters_get_what_was_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    rows = torch.tensor([[1.0], [2.0], [6.0], [7.0]])
    with caplog.at_level(logging.WARNING):
        assert step_of(Krum(liars=0.21), rows).tolist() == [4.0]
        assert step_of(Krum(liars=0.21), rows).tolist() == [4.0]
        assert step_of(Krum(liars=0.21, small="stay"), rows).tolist() == [0.0]
    said, other = (record.getMessage() for record in caplog.records)
    assert said == (
        "averaging.rule: Krum needs 2 f + 3 clients or more, with f = 0.21 n liars among n; "
        "a cluster with fewer moves by its coordinate median"
    )
    assert other.endswith("does not move")
    with pytest.raises(UsageError, match=r"2 f \+ 3 clients .* and a cluster has 4; give"):
        step_of(Krum(small="stop"), rows)
    # .1 of 30 is 3, and not 4 by rounding.
    assert Krum(liars=0.1).num_liars(30) == 3


def test_a_run_whose_cohorts_are_too_small_is_refused() -> None:
    method = FedAvg(averaging=Averaging(rule=Krum()))
    message = r"averaging\.rule: 'Krum' is not possible with a cohort of 4: it needs 2 f \+ 3"
    with pytest.raises(UsageError, match=message):
        method.check(Known(0.4, num_clients=10))
    method.check(Known(0.5, num_clients=10))
    for trusted in ((), (4,), (-1,)):
        trusting = FedAvg(averaging=Averaging(rule=FLTrust(trusted=trusted)))
        with pytest.raises(UsageError, match=r"rule\.trusted: .* is not one or more .* 0 to 3"):
            trusting.check(Known(1.0, num_clients=4))
    trusting = FedAvg(averaging=Averaging(rule=FLTrust(trusted=(1,))))
    with pytest.raises(UsageError, match=r"rule\.trusted: .* left out with \[membership\]"):
        Run(trusting, blobs(), mlp(), membership=Membership())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Median(liars=0.5), r"liars: 0.5 is not in \[0, 0.5\)"),
        (lambda: GeometricMedian(nu=0.0), "nu: 0.0 is not more than 0"),
        (lambda: NormBound(radius=0.0), "radius: 0.0 is not more than 0"),
        (lambda: CentredClipping(passes=0), "passes: 0 is not in 1 to 1000"),
        (
            lambda: LCFL(start="own", averaging=Averaging(rule=NormBound())),
            "averaging.rule: 'NormBound' is not possible with start \"own\"",
        ),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.parametrize("rule", [CentredClipping(), FLTrust(trusted=(0, 3))], ids=str)
@pytest.mark.parametrize("name", by_name(AVERAGING))
def test_every_method_tells_a_rule_what_it_needs(name: str, rule: Robust) -> None:
    try:
        method = with_rule(AVERAGING[name], rule)
        models = last_state(run_of(method)).models
    except UsageError as error:
        assert name in ("ifca, gradients", "lcfl, own starts")
        assert str(error).startswith("averaging.rule: ")  # noqa: PT017
        return
    assert models.isfinite().all()


def test_first_models_after_a_warm_up_are_bounded_from_where_they_began() -> None:
    method = LCFL(LOCAL, num_clusters=2)

    def first_models(averaging: Averaging) -> Tensor:
        run = run_of(replace(method, averaging=averaging))
        models: Tensor = next(run.rounds(1))[0].models
        return models

    plain = first_models(Averaging("equal"))
    assert (plain[0] - plain[1]).norm() > 1e-2
    for rule in (NormBound(radius=1e6), CentredClipping(radius=1e6)):
        torch.testing.assert_close(first_models(Averaging(rule=rule)), plain)
        near = first_models(Averaging(rule=replace(rule, radius=1e-6)))
        assert 0 < (near[0] - near[1]).norm() < 1e-5
