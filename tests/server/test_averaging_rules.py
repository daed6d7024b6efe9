"""Rules of averages, worked by hand, and inside every method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import pytest
import torch
from torch import Tensor, nn

from tests.algorithms.test_contract import ADAPTED, CASES, LOCAL, by_name
from tests.federations import answered, blobs, context, layout, mlp, setup
from umbel.algorithms import FLACC, IFCA, FedAvg, Sattler
from umbel.algorithms.base import Algorithm, State
from umbel.algorithms.restarts import innermost
from umbel.algorithms.sattler import SattlerState
from umbel.checks import UsageError
from umbel.client.layout import Entry, Layout
from umbel.client.net import Net
from umbel.reduction import Sums, Updates
from umbel.result.run import Run
from umbel.server.aggregation import Averaging
from umbel.server.averaging_rules import (
    AveragingRule,
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedYogi,
    Mean,
)
from umbel.server.robust_rules import TrimmedMean
from umbel.testing.runs import last_state, run_of

FIRST, SECOND = torch.tensor([0.5]), [0.0, 0.1]


@pytest.mark.parametrize(
    ("rule", "steps"),
    [
        # The first step is by 1/2; the second by 0, or by .1 instead.
        (FedAdam(lr=1, tau=0.05), (0.5, 0.451131, 0.545936)),
        (FedYogi(lr=1, tau=0.05), (0.5, 0.45, 0.544607)),
        (FedAdagrad(lr=1, tau=0.5), (0.5, 0.0, 0.099020)),
        (FedAdam(lr=1, tau=0.05, initial="tau"), (0.414822, None, None)),
        (FedAvgM(), (0.5, 0.45, 0.55)),
        (FedAvgM(lr=0.5, momentum=0.5), (0.25, 0.125, 0.175)),
        (Mean(), (0.5, 0.0, 0.1)),
    ],
    ids=str,
)
def test_steps_are_those_worked_by_hand(
    rule: AveragingRule, steps: tuple[float | None, ...]
) -> None:
    first, moments = rule.step(FIRST, rule.start(FIRST))
    later = [rule.step(torch.tensor([then]), moments)[0] for then in SECOND]
    for found, expected in zip((first, *later), steps, strict=True):
        assert expected is None or float(found) == pytest.approx(expected, abs=1e-6)


def test_yogi_forgets_more_slowly_than_adam_after_a_long_step() -> None:
    # v = 1, d^2 = 1/4: Yogi takes (1 - 1/2) / 4 off, Adam halves the difference.
    v, square = torch.tensor([1.0]), torch.tensor([0.25])
    assert FedYogi(beta2=0.5).second(square, v).tolist() == [0.875]
    assert FedYogi(beta2=0.5).second(v, square).tolist() == [0.75]
    assert FedAdam(beta2=0.5).second(square, v).tolist() == [0.625]


def test_each_cluster_has_moments_and_one_without_an_answer_keeps_them_and_its_model() -> None:
    averaging = Averaging(rule=FedAvgM(momentum=0.5))

    def after(rows: list[float], labels: list[int], moments: Any = ()) -> tuple[Any, Any]:
        update, number = torch.tensor(rows)[:, None], torch.ones(len(rows), dtype=torch.long)
        sums = averaging.sums(update, torch.tensor(labels, dtype=torch.long), number, 2)
        step, (velocity,) = averaging.move(sums, layout(1), moments)
        return step[:, 0].tolist(), velocity

    step, moments = after([4.0, 2.0, 8.0], [0, 0, 1])
    assert step == [3.0, 8.0]
    # Both clients of cluster 0 are in cluster 1 now: they bring nothing along.
    step, moments = after([2.0, 2.0], [1, 1], (moments,))
    assert (step, moments.tolist()) == ([0.0, 6.0], [[3.0], [6.0]])
    step, moments = after([], [], (moments,))
    assert (step, moments.tolist()) == ([0.0, 0.0], [[3.0], [6.0]])
    # Moments of another number of clusters are of no use.
    step, _ = after([2.0], [1], (moments[:1],))
    assert step == [0.0, 2.0]


def test_statistics_move_by_their_mean_and_shared_parameters_in_all_clusters() -> None:
    names = Layout((Entry("trunk", torch.Size([1])), Entry("head", torch.Size([1]))),
                   (Entry("norm.running_var", torch.Size([1])),))  # fmt: skip
    averaging = Averaging(shared=("trunk",), rule=FedAvgM(lr=2, momentum=0.5))
    rows = torch.tensor([[1.0, 1.0, 1.0]], dtype=torch.bfloat16)
    sums = averaging.sums(rows, torch.tensor([0]), torch.tensor([5]), 2)
    step, moments = averaging.move(sums, names)
    assert step.tolist() == [[2.0, 2.0, 1.0], [2.0, 0.0, 0.0]]
    step, moments = averaging.move(sums, names, moments)
    assert step.tolist() == [[3.0, 3.0, 1.0], [3.0, 0.0, 0.0]]
    assert moments[0].tolist() == [[1.5, 1.5], [1.5, 0.0]]
    assert (step.dtype, moments[0].dtype) == (torch.bfloat16, torch.float32)


def with_rule(algorithm: Algorithm[Any], rule: AveragingRule) -> Algorithm[Any]:
    """The method, inside its wrappers, with this rule in its averages."""
    if algorithm is not innermost(algorithm):
        return replace(algorithm, of=with_rule(algorithm.of, rule))  # type: ignore[call-arg, attr-defined]
    averaging = replace(algorithm.averaging, rule=rule)  # type: ignore[attr-defined]
    return replace(algorithm, averaging=averaging)  # type: ignore[call-arg]


AVERAGING = {
    name: method
    for name, method in {**CASES, **ADAPTED}.items()
    if getattr(getattr(innermost(method), "averaging", None), "rule", None) == Mean()
}


@pytest.mark.parametrize("name", by_name(AVERAGING))
def test_no_method_ignores_the_rule_and_an_idle_one_changes_nothing(name: str) -> None:
    method = AVERAGING[name]
    plain = last_state(run_of(method)).models
    idle = last_state(run_of(with_rule(method, FedAvgM(momentum=0.0)))).models
    assert torch.equal(idle, plain)
    moved = last_state(run_of(with_rule(method, FedYogi(tau=0.1)))).models
    assert moved.shape != plain.shape or (moved - plain).abs().max() > 1e-3
    doubled = last_state(run_of(with_rule(method, FedAvgM(momentum=0.5)))).models
    assert doubled.shape != plain.shape or (doubled - plain).abs().max() > 1e-3


def test_a_method_that_does_not_keep_moments_is_refused() -> None:
    class Forgetful(FedAvg):
        def round(self, state: State, ctx: Any) -> Any:
            yield from ()
            rows, one = torch.ones(1, ctx.layout.num_values).double(), torch.ones(1).long()
            step = self.averaging.step(rows, one - 1, one, 1, ctx.layout)
            return replace(state, models=state.models + step)

    last_state(run_of(Forgetful(LOCAL)))
    with pytest.raises(
        UsageError, match=r"averaging\.rule: .*FedAdam.* is not one without moments"
    ):
        last_state(run_of(Forgetful(LOCAL, Averaging(rule=FedAdam()))))


def test_running_statistics_are_plain_means_whatever_the_rule() -> None:
    net = Net(lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double())
    local = replace(LOCAL, drop_last=True)
    first, width = next(Run(FedAvg(local), blobs(), net).rounds(1))[0], net.layout.num_weights
    for rule in (FedAvgM(lr=4.0), FedAdam()):
        method = FedAvg(local, Averaging(rule=rule))
        after, _ = next(Run(method, blobs(), net).rounds(1))
        assert torch.equal(after.models[:, width:], first.models[:, width:])
        assert not torch.equal(after.models[:, :width], first.models[:, :width])
        assert after.moments[0].shape == (1, width)


def test_entities_that_separate_continue_with_the_moments_of_the_one_model() -> None:
    method = FLACC(LOCAL, n_sep=1, alpha_0=0.99, averaging=Averaging(rule=FedAvgM()))
    states = [state for state, _ in run_of(method).rounds(6)]
    number = next(n for n, state in enumerate(states) if len(state.models) > 1)
    before, after = states[number - 1], states[number]
    assert len(after.models) > 1
    missing = [
        k for k in range(len(after.models)) if torch.equal(after.models[k], before.models[0])
    ]
    assert missing  # entities without a client in this cohort
    assert all(torch.equal(after.moments[0][k], before.moments[0][0]) for k in missing)


def test_both_halves_of_a_split_continue_with_its_moments() -> None:
    rule = FedAvgM(momentum=0.5)
    method = Sattler(eps_1=1, eps_2=1, from_round=0, averaging=Averaging(rule=rule))
    state: SattlerState = method.init(setup(2, 2))
    flow = method.round(state, context([0, 1], 2, 2))
    next(flow)
    after = answered(flow, [0, 1], update=[[2.0, 0.5], [-2.0, 0.5]], num_examples=[1, 1])
    assert after.labels.tolist() == [0, 1] or after.labels.tolist() == [1, 0]
    assert after.moments[0].tolist() == [[0.0, 0.5], [0.0, 0.5]]


@pytest.mark.parametrize(("trim", "mean"), [(0.1, 21.5), (0.2, 2.5), (0.4, 2.0)])
def test_a_trimmed_mean_leaves_out_the_ends_of_each_value(trim: float, mean: float) -> None:
    # .1 of five clients is none: 215 / 10. By .2 the values 1, 2, 3 are left, of clients with 1, 1
    # and 4 examples: (1 + 2 + 12) / 6. By .4 one value is left.
    rows = torch.tensor([[100.0], [0.0], [1.0], [3.0], [2.0], [7.0]])
    labels, examples = torch.tensor([0, 0, 0, 0, 0, 1]), torch.tensor([2, 2, 1, 4, 1, 1])
    averaging = Averaging(rule=TrimmedMean(trim=trim))
    step = averaging.step(rows, labels, examples, 3, layout(1))
    torch.testing.assert_close(step, torch.tensor([[mean], [7.0], [0.0]]))


@dataclass(frozen=True)
class Median(AveragingRule):
    """The lower median of each value, over the clients of a cluster."""

    needs_rows: ClassVar[bool] = True

    def mean(self, updates: Sums | Updates) -> Tensor:
        assert isinstance(updates, Updates)
        rows = updates.values
        found = rows.new_zeros(updates.num_clusters, rows.shape[1])
        for k in set(updates.labels.tolist()):
            found[k] = rows[updates.labels == k].median(0).values
        return found


def test_a_rule_of_ones_own_may_take_the_median_of_rows() -> None:
    averaging = Averaging(rule=Median(), shared=("w",))
    rows, labels = torch.tensor([[1.0], [9.0], [3.0], [4.0]]), torch.tensor([0, 0, 1, 0])
    one = torch.ones(4, dtype=torch.long)
    alone = replace(averaging, shared=())
    assert alone.step(rows, labels, one, 3, layout(1)).tolist() == [[4.0], [3.0], [0.0]]
    assert averaging.step(rows, labels, one, 3, layout(1)).tolist() == [[3.0], [3.0], [3.0]]


@pytest.mark.parametrize("name", by_name(AVERAGING))
def test_every_method_gives_rows_to_a_rule_that_needs_them(name: str) -> None:
    method = AVERAGING[name]
    plain = last_state(run_of(method)).models
    try:
        found = last_state(run_of(with_rule(method, Median()))).models
    except UsageError as error:
        assert name == "ifca, gradients"
        assert str(error).startswith("averaging.rule: ")  # noqa: PT017
        return
    assert found.shape != plain.shape or (found - plain).abs().max() > 1e-4


def test_only_rows_are_asked_for_where_a_rule_needs_them() -> None:
    state = FedAvg().init(setup(2))
    assert next(FedAvg().round(state, context([0], 2))).reduction is not None
    method = FedAvg(averaging=Averaging(rule=Median()))
    assert next(method.round(state, context([0], 2))).reduction is None
    models = IFCA(averaging=Averaging(rule=Median()))
    assert next(models.round(models.init(setup(2)), context([0], 2))).reduction is None


def averaging(rule: Any) -> Averaging:
    return Averaging(rule=rule)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedAvgM(momentum=1), "momentum: 1 is not in"),
        (lambda: FedAvgM(lr=0), "lr: 0 is not more than 0"),
        (lambda: FedAdam(beta1=1), "beta1: 1 is not in"),
        (lambda: FedYogi(beta2=-1), "beta2: -1 is not in"),
        (lambda: FedAdagrad(tau=0), "tau: 0 is not more than 0"),
        (lambda: FedAdam(initial=cast("Any", "one")), 'initial: .one. is not "zero" or "tau"'),
        (lambda: averaging("fedadm"), "rule: 'fedadm' is not .*; did you mean umbel.FedAdam"),
        (lambda: averaging(FedAdam), "write umbel.FedAdam"),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_steps_of_half_precision_models_are_finite() -> None:
    method = FedAvg(LOCAL, Averaging(rule=FedAdam()))
    run = Run(method, blobs(), mlp(dtype=torch.bfloat16))
    *_, (state, _) = run.rounds(3)
    assert state.models.dtype == torch.bfloat16
    assert state.models.isfinite().all()
