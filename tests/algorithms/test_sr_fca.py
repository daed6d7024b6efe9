"""SR-FCA by hand: the first clusters, trimmed means, and a refinement."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.federations import answered, context, requested, setup
from umbel.algorithms import SRFCA
from umbel.algorithms.sr_fca import SRFCAState
from umbel.checks import UsageError
from umbel.client.work import LocalTraining, MeanLoss
from umbel.flow import Replies
from umbel.server.aggregation import Averaging
from umbel.server.robust_rules import TrimmedMean

ALONE = LocalTraining(lr=0.3, epochs=40)
METHOD = SRFCA(threshold=1.5, smallest=1, warm_up_training=ALONE)


def after_first(method: SRFCA, own: list[float]) -> SRFCAState:
    """The state after the first round: client i trains to own[i], and L_j(w) = |w - own[j]|."""
    count, values = len(own), torch.tensor(own)
    flow = method.round(method.init(setup(count)), context([1], count))
    request = requested(flow)
    assert request.work == ALONE
    assert request.clients.tolist() == [*range(count)]  # whatever the cohort
    columns = {"update": values[:, None], "num_examples": torch.ones(count).long()}
    following = flow.send(Replies(torch.arange(count), columns))
    assert following.work == MeanLoss()
    assert following.shared["models"].flatten().tolist() == own
    return answered(flow, [*range(count)], losses=apart(values))


def apart(own: Tensor) -> Tensor:
    return (own - own[:, None]).abs().double()


def test_clients_whose_models_fit_each_other_are_clusters() -> None:
    after = after_first(METHOD, [1.0, 2.0, 11.0, 12.0])
    assert after.labels[0] == after.labels[1] != after.labels[2] == after.labels[3]
    assert after.models.tolist() == [[0.0], [0.0]]  # from the first model
    assert after.placed.all()


def test_a_pivot_takes_only_those_that_are_near_itself() -> None:
    # 1 is near 0 and near 2, which are 2 apart: by the pivot, two clusters or one.
    sizes = {
        after_first(replace(METHOD, threshold=1.0, smallest=0), own).models.shape[0]
        for own in ([0.0, 1.0, 2.0], [1.0, 0.0, 2.0], [0.0, 2.0, 1.0])
    }
    assert sizes == {1, 2}


def test_the_bound_is_a_quantile_of_the_distances() -> None:
    # Distances 1, 1, 9, 10, 10, 11: three of ten is the third of six.
    after = after_first(replace(METHOD, threshold=None, quantile=0.3), [1.0, 2.0, 11.0, 12.0])
    assert after.bound == pytest.approx(9, rel=1e-5)


def test_clients_of_small_clusters_wait_and_are_served_the_model_that_fits() -> None:
    after = after_first(METHOD, [1.0, 2.0, 11.0, 7.0, 7.5])
    assert after.placed.tolist() == [True, True, False, True, True]
    flow = METHOD.round(after, context([2], 5, number=1))
    with pytest.raises(StopIteration):  # nobody is asked
        next(flow)
    serving = METHOD.serve(after, context([0, 2], 5))
    assert requested(serving).clients.tolist() == [2]
    served = answered(serving, [2], losses=[[3.0, 1.0]])
    assert served.labels.tolist() == [int(after.labels[0]), 1]


def test_clusters_are_kept_if_all_are_small() -> None:
    after = after_first(replace(METHOD, smallest=9), [1.0, 2.0, 11.0])
    assert after.placed.tolist() == [True, True, False]


@pytest.mark.parametrize(("trim", "mean"), [(0.2, 2.0), (0.1, 21.2), (0.4, 2.0)])
def test_the_lowest_and_highest_values_are_left_out(trim: float, mean: float) -> None:
    state = replace(
        METHOD.init(setup(5)), placed=torch.ones(5).bool(), bound=1.0, models=torch.tensor([[10.0]])
    )
    averaging = Averaging("equal", rule=TrimmedMean(trim=trim))
    flow = replace(METHOD, averaging=averaging).round(state, context([*range(5)], 5, number=1))
    assert requested(flow).work == LocalTraining()
    update = [[100.0], [0.0], [1.0], [3.0], [2.0]]
    after = answered(flow, [*range(5)], update=update, num_examples=[9, 1, 1, 1, 1])
    torch.testing.assert_close(after.models, torch.tensor([[10 + mean]]))


OWN = torch.tensor([1.0, 2.0, 11.0, 12.0])
STATE = SRFCAState(
    torch.tensor([[0.0], [10.0]]),
    torch.tensor([0, 0, 1, 1]),
    placed=torch.tensor([True, True, True, False]),
    cross=apart(OWN),
    bound=5.0,
)
FOUND = [[0.0, 3.0], [5.0, 4.0], [8.0, 1.0], [8.0, 1.0]]


@pytest.mark.parametrize("bound", [5.0, 6.0])
def test_a_refinement_places_everyone_by_both_losses_and_merges_near_clusters(bound: float) -> None:
    state = replace(STATE, bound=bound)
    flow = METHOD.round(state, context([3], 4, number=METHOD.refine_rounds))
    request = requested(flow)
    assert (request.optional, request.use) == (True, "compared")
    assert request.clients.tolist() == [0, 1, 2, 3]
    after = answered(flow, [0, 1, 2, 3], losses=torch.tensor(FOUND).double())
    # Client 1 fits theta_1 better, 4 to 5, but w_1 has the mean losses 1/2 and 9: it stays.
    # theta_1 on cluster 0 has (3 + 4) / 2, theta_0 on cluster 1 has 8: (3.5 + 8) / 2 = 5.75 apart.
    if bound < 5.75:
        assert after.models.tolist() == [[0.0], [10.0]] or after.models.tolist() == [[10.0], [0.0]]
        assert after.labels[0] == after.labels[1] != after.labels[2] == after.labels[3]
    else:
        assert after.models.tolist() == [[5.0]]
        assert after.labels.tolist() == [0, 0, 0, 0]
    assert after.placed.all()


def test_a_client_without_a_model_of_its_own_joins_by_the_clusters_models() -> None:
    cross = STATE.cross.clone()
    cross[3], cross[:, 3] = torch.nan, torch.nan
    state = replace(STATE, cross=cross)
    flow = METHOD.round(state, context([3], 4, number=2 * METHOD.refine_rounds))
    requested(flow)
    after = answered(flow, [1, 2, 3], losses=torch.tensor(FOUND[1:]).double())
    assert after.labels[2] == after.labels[3]
    assert after.placed.tolist() == [False, True, True, True]  # client 0 did not answer


def test_settings_out_of_range_are_refused() -> None:
    wrong = {"quantile": 0.0, "smallest": -1, "refinements": -1, "refine_rounds": 0}
    for setting, value in wrong.items():
        with pytest.raises(UsageError, match=rf"{setting}: .* is not "):
            replace(METHOD, **{setting: value})  # type: ignore[arg-type]
