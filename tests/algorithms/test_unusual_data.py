"""Every method runs on data and modules that it was not written for."""

from __future__ import annotations

import pytest

import umbel
from tests.algorithms.test_contract import CASES
from tests.engines.test_kinds import KINDS, Kind, federation

UNUSUAL = {
    "regression of x (n,)",
    "binary, one output",
    "multi-label, whole numbers",
    "transformer, padded sequences",
}

NOT_ALL = ("oracle", "pacfl, per class", "fedccfa", "fedproto", "fedrc")

NAMES = [name for name, case in CASES.items() if not case.pools and name not in NOT_ALL]
"""All but those that ask for layers of a name, for planted groups, or for one class an example."""


@pytest.mark.parametrize("kind", [k for k in KINDS if k.name in UNUSUAL], ids=lambda k: k.name)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.thorough if ", " in n else ()) for n in NAMES]
)
def test_every_method_runs_on_unusual_data(name: str, kind: Kind) -> None:
    net = umbel.Net(kind.build, kind.objective, moving=kind.moving)
    *_, (state, record) = umbel.Run(CASES[name], federation(kind), net, seed=1).rounds(3)
    assert state.models.isfinite().all()
    assert record.loss is not None
    assert record.refused == {}
