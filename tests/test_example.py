"""A method of one's own keeps the contract by which the shipped ones are judged."""

import pytest
import torch
from examples.my_algorithm import OneShotKMeans

from umbel.method import Context, Entry, Layout, Replies, State
from umbel.testing import CHECKS, Check


@pytest.mark.parametrize("check", CHECKS)
def test_my_method_keeps_the_contract(check: Check) -> None:
    check(OneShotKMeans(num_clusters=2, cluster_round=2))


def test_one_cluster_is_federated_averaging_without_clustering() -> None:
    layout = Layout((Entry("w", torch.Size([1])),), ())
    cohort = torch.tensor([0, 2])
    ctx = Context(round=7, num_rounds=9, cohort=cohort, num_clients=3, seed=0, layout=layout)
    state = State(models=torch.tensor([[1.0]]), labels=torch.zeros(3, dtype=torch.long))
    flow = OneShotKMeans(num_clusters=1).round(state, ctx)
    assert next(flow).clients.tolist() == [0, 2]  # not everyone
    columns = {"update": torch.tensor([[4.0], [0.0]]), "num_examples": torch.tensor([1, 3])}
    with pytest.raises(StopIteration) as end:
        flow.send(Replies(cohort, columns))
    assert end.value.value.models.tolist() == [[2.0]]
