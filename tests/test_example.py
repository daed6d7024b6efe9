"""A method of one's own keeps the contract by which the shipped ones are judged."""

import pytest
from examples.my_algorithm import OneShotKMeans

from umbel.testing import CHECKS, Check


@pytest.mark.parametrize("check", CHECKS)
def test_my_method_keeps_the_contract(check: Check) -> None:
    check(OneShotKMeans(num_clusters=2, cluster_round=2))
