"""Checks that every method must pass, to be called from your own tests.

    import pytest
    from umbel.testing import CHECKS

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_method_keeps_the_contract(check):
        check(MyMethod(num_clusters=2))

Each check runs the method for a few rounds on a small federation. It raises `AssertionError` if the
method does not pass, and `UsageError` if the method returns values of a wrong form, such as a wrong
shape. Choose settings with which the method clusters within `ROUNDS` rounds. A method that refuses
networks without low-rank adapters is given a network that has some.
"""

from __future__ import annotations

from typing import Any

from umbel.algorithms.base import Algorithm
from umbel.run.wrappers import completed
from umbel.testing.absences import (
    a_federation_of_one_client_is_fine_or_refused,
    clients_never_asked_are_served,
    everyone_may_take_part_and_so_may_one,
    faults_are_survived_and_named,
    one_client_may_be_lost_in_any_request,
    requests_that_nobody_answers_are_survived,
)
from umbel.testing.asking import it_asks_only_for_works_that_it_declares
from umbel.testing.federations import adapted_mlp, blobs, mlp
from umbel.testing.membership import clients_may_come_and_leave
from umbel.testing.runs import ROUNDS
from umbel.testing.sameness import (
    a_resumed_run_ends_as_the_uninterrupted_one,
    a_round_leaves_the_state_before_it_as_it_was,
    engines_agree,
    its_settings_read_back_from_toml_the_same,
    planted_groups_make_no_difference,
    the_order_of_replies_is_free,
    the_same_run_twice_gives_the_same_records,
)
from umbel.testing.sentences import Check
from umbel.testing.sharing import what_clusters_share_is_one_for_all
from umbel.testing.states import assert_same_state
from umbel.testing.telling import (
    newcomers_are_assigned_or_refused,
    what_it_tells_fits_the_clients,
)

__all__ = [
    "CHECKS",
    "ROUNDS",
    "Check",
    "adapted_mlp",
    "assert_same_state",
    "blobs",
    "check_method",
    "mlp",
]


def check_method(algorithm: Algorithm[Any]) -> None:
    """Call all `CHECKS` with a method. Raises `AssertionError` for the first check that fails."""
    algorithm = completed(algorithm)
    for check in CHECKS:
        check(algorithm)


CHECKS: tuple[Check, ...] = (
    engines_agree,
    the_order_of_replies_is_free,
    the_same_run_twice_gives_the_same_records,
    a_resumed_run_ends_as_the_uninterrupted_one,
    faults_are_survived_and_named,
    requests_that_nobody_answers_are_survived,
    one_client_may_be_lost_in_any_request,
    clients_never_asked_are_served,
    everyone_may_take_part_and_so_may_one,
    a_federation_of_one_client_is_fine_or_refused,
    clients_may_come_and_leave,
    its_settings_read_back_from_toml_the_same,
    a_round_leaves_the_state_before_it_as_it_was,
    planted_groups_make_no_difference,
    what_clusters_share_is_one_for_all,
    newcomers_are_assigned_or_refused,
    what_it_tells_fits_the_clients,
    it_asks_only_for_works_that_it_declares,
)
"""All checks, for `pytest.mark.parametrize`: each is a function that takes a method."""
