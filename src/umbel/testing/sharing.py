"""Checks of the parameters that the models of all clusters share."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from umbel.algorithms.base import Algorithm
from umbel.checks import UsageError
from umbel.server.aggregation import Averaging
from umbel.testing.runs import ROUNDS, last_state, run_of
from umbel.testing.sentences import told

TOLERANCE = 1e-9
"""Largest difference that rounding may make."""


@told
def what_clusters_share_is_one_for_all(algorithm: Algorithm[Any]) -> None:
    """Parameters named by `Averaging.shared` are equal in all clusters, from start to end."""
    layout = run_of(algorithm).net.layout
    given = {member.name: getattr(algorithm, member.name) for member in fields(algorithm)}
    sharing = {
        name: replace(value, shared=value.shared or (layout.weights[0].name,))
        for name, value in given.items()
        if isinstance(value, Averaging)
    }
    try:
        run = run_of(replace(algorithm, **sharing))
    except UsageError:
        return  # with these settings nothing can be shared
    for name, averaging in sharing.items():
        mask = layout.mask(averaging.shared)
        for state, when in ((run.start(ROUNDS), "first"), (last_state(run), "last")):
            common = state.models[:, mask]
            apart = float((common - common[0]).abs().max())
            assert apart <= TOLERANCE, (
                f"models differ at {when} in {', '.join(averaging.shared)}, by {apart:.2g}, but "
                f"{name}.shared gives all clusters the same values: start from "
                f"setup.new_models(K, {name}.shared), and step by {name}.step"
            )
